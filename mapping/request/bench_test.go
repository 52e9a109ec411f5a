package request_test

import (
	"testing"

	"github.com/promtsd/promtsd/mapping/request"
)

func BenchmarkParseLabels(b *testing.B) {
	var labels []byte
	for _, name := range []string{"__name__", "instance", "job", "namespace", "pod", "container", "le", "code"} {
		labels = request.AppendLabel(labels, name, "a value of "+name)
	}
	n := 0
	count := func(name, value []byte) error { n += len(name) + len(value); return nil }
	b.ReportAllocs()
	b.SetBytes(int64(len(labels)))
	for b.Loop() {
		if err := request.ParseLabels(labels, count); err != nil {
			b.Fatal(err)
		}
	}
}
