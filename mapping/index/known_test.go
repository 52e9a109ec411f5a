package index

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
)

func TestKnown_IsEmptiedWhenItIsFull(t *testing.T) {
	var k known
	value := strings.Repeat("v", maxKnownBytes/16)
	for i := range 100 {
		s := []Series{{TSUID: []byte(fmt.Sprint(i)), Labels: labels.FromStrings("a", fmt.Sprint(i), "b", value)}}
		k.keep(s, []int{0})
		again := []Series{{TSUID: s[0].TSUID}, {TSUID: []byte("other")}}
		if unknown := k.recall(again); len(unknown) != 1 || unknown[0] != 1 || !labels.Equal(again[0].Labels, s[0].Labels) {
			t.Fatalf("after %d: labels %.20s, and %v are unknown", i, again[0].Labels, unknown)
		}
		size := 0
		for _, ls := range k.labels {
			size += int(ls.ByteSize())
		}
		if most := maxKnownBytes + maxKnownBytes/8; size > most || i < 10 && len(k.labels) != i+1 {
			t.Fatalf("after %d there are %d entries of %d bytes, want at most %d", i, len(k.labels), size, most)
		}
	}
}
