package wire_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/promtsd/promtsd/adapter/wire"
)

// message is a message of one field, which holds some bytes.
func message(field protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), content)
}

// within puts bytes into messages, the innermost field first.
func within(content []byte, fields ...protowire.Number) []byte {
	for _, f := range fields {
		content = message(f, content)
	}
	return content
}

// The estimate is no less than what unmarshalling takes, for the smallest elements of each kind, and not absurd for an
// honest request.
func TestOTLPMemory_IsWhatUnmarshallingTakes(t *testing.T) {
	const n = 200_000
	empty := func(field protowire.Number) []byte { return bytes.Repeat(message(field, nil), n) }
	bodies := map[string][]byte{
		"resources":          empty(1),
		"scopes":             within(empty(2), 1),
		"metrics":            within(empty(2), 2, 1),
		"numbers":            within(empty(1), 5, 2, 2, 1),
		"histograms":         within(empty(1), 9, 2, 2, 1),
		"exponential":        within(empty(1), 10, 2, 2, 1),
		"summaries":          within(empty(1), 11, 2, 2, 1),
		"attributes":         within(empty(7), 1, 5, 2, 2, 1),
		"resource's":         within(empty(1), 1, 1),
		"values in an array": within(empty(1), 5, 2, 7, 1, 5, 2, 2, 1),
		"buckets":            within(bytes.Repeat([]byte{1}, n), 2, 8, 1, 10, 2, 2, 1),
		"cut":                append(empty(1), 0x0a, 0x05),
		"honest":             honestOTLP(t),
	}
	for name, body := range bodies {
		estimate, err := wire.OTLPMemory(body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		request := pmetricotlp.NewExportRequest()
		_ = request.UnmarshalProto(body) // one of them is cut
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(request)
		// What is garbage at once is in it: lists that grew.
		if allocated := int64(after.TotalAlloc - before.TotalAlloc); estimate < allocated/4 ||
			estimate > 40*int64(len(body))+allocated*16 {
			t.Errorf("%s: %d bytes of body are said to take %d bytes, and %d were allocated", name, len(body), estimate,
				allocated)
		}
	}
}

func honestOTLP(t *testing.T) []byte {
	t.Helper()
	metrics := pmetric.NewMetrics()
	scope := metrics.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty()
	for range 500 {
		m := scope.Metrics().AppendEmpty()
		m.SetName("http.server.request.duration")
		points := m.SetEmptyGauge().DataPoints()
		for range 8 {
			p := points.AppendEmpty()
			p.SetDoubleValue(1.5)
			for _, name := range []string{"http.request.method", "http.route", "http.response.status_code", "server.address"} {
				p.Attributes().PutStr(name, "the value of "+name)
			}
		}
	}
	body, err := pmetricotlp.NewExportRequestFromMetrics(metrics).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestOTLPMemory_RefusesWhatIsNestedTooDeep(t *testing.T) {
	deep := []byte{}
	for range 10_000 {
		deep = within(deep, 1, 5, 2) // a value in an array in an attribute
	}
	if _, err := wire.OTLPMemory(within(deep, 7, 1, 5, 2, 2, 1)); !errors.Is(err, wire.ErrTooDeep) {
		t.Errorf("protobuf: got %v, want ErrTooDeep", err)
	}
	text := append(bytes.Repeat([]byte(`{"a":[`), 1000), '"')
	if _, err := wire.OTLPJSONMemory(text); !errors.Is(err, wire.ErrTooDeep) {
		t.Errorf("JSON: got %v, want ErrTooDeep", err)
	}
	for text, want := range map[string]int64{
		`{"resourceMetrics":[{},{}]}`: 27*2 + 3*256 + 64,
		`{"a":"{[{[\"{{{{","b":"\\"}`: 27*2 + 256,
	} {
		if got, err := wire.OTLPJSONMemory([]byte(text)); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
}

func FuzzOTLPMemory(f *testing.F) {
	f.Add(within(nil, 1, 5, 2, 2, 1))
	f.Add([]byte{0x0b, 0x0c, 0x0a})
	f.Fuzz(func(t *testing.T, body []byte) {
		memory, err := wire.OTLPMemory(body)
		if err != nil {
			return
		}
		request := pmetricotlp.NewExportRequest()
		if request.UnmarshalProto(body) == nil && memory < int64(request.Metrics().DataPointCount())*256 {
			t.Errorf("%x is said to take %d bytes, and has %d points", body, memory, request.Metrics().DataPointCount())
		}
		_, _ = wire.OTLPJSONMemory(body)
	})
}
