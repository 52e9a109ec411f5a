package wire_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/request"
)

// notes are what stands beside the samples of a request, as text: exemplars, then metadata.
type notes struct {
	exemplars int
	texts     []string
}

func (n *notes) exemplar(series int, t int64, v float64, labels []string) {
	n.texts = slices.Insert(n.texts, n.exemplars, fmt.Sprintf("%d %d:%016x %q", series, t, math.Float64bits(v), labels))
	n.exemplars++
}

func (n *notes) metadata(family, typ, help, unit string) {
	n.texts = append(n.texts, fmt.Sprintf("%q %s %q %q", family, typ, help, unit))
}

// notesOf is what a decoder says of it.
func notesOf(t rapid.TB, req *request.Write) []string {
	var n notes
	for _, e := range req.Exemplars {
		var labels []string
		if err := request.ParseLabels(e.Labels, func(name, value []byte) error {
			labels = append(labels, string(name), string(value))
			return nil
		}); err != nil {
			t.Fatalf("label bytes %x: %v", e.Labels, err)
		}
		n.exemplar(e.Series, e.T, e.V, labels)
	}
	for _, m := range req.Metadata {
		n.metadata(string(m.Family), m.Type, string(m.Help), string(m.Unit))
	}
	return n.texts
}

// metadataType is the type of a metric family by its number, in Prometheus's words.
func metadataType(number int32) string {
	if name, ok := prompb.MetricMetadata_MetricType_name[number]; ok {
		return strings.ToLower(name)
	}
	return "unknown"
}

func TestDecodeV2_MetadataIsOfTheFamilyAndOnce(t *testing.T) {
	msg := writev2.Request{Symbols: []string{"", "__name__", "le", "1", "help", "seconds", "other"}}
	counter := writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: 6}
	histogram := writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_HISTOGRAM, HelpRef: 4, UnitRef: 5}
	for _, s := range []struct {
		name string
		meta writev2.Metadata
	}{
		{"a_bucket", histogram}, {"a_bucket", histogram}, {"a_sum", histogram}, {"a_count", histogram},
		{"b_count", counter}, {"c", writev2.Metadata{}}, {"b_count", counter}, {"_sum", histogram},
		{"d", writev2.Metadata{Type: 99}},
	} {
		msg.Symbols = append(msg.Symbols, s.name)
		msg.Timeseries = append(msg.Timeseries, writev2.TimeSeries{
			LabelsRefs: []uint32{2, 3, 1, uint32(len(msg.Symbols) - 1)}, Metadata: s.meta,
			Samples: []writev2.Sample{{Value: 1, Timestamp: 1000}},
		})
	}
	body, err := msg.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`"a" histogram "help" "seconds"`, `"b_count" counter "other" ""`, `"_sum" histogram "help" "seconds"`,
		`"d" unknown "" ""`,
	}
	var d wire.Decoder
	var req request.Write
	for range 2 { // what one body leaves behind is nothing to the next
		if _, err := d.DecodeV2(body, &req); err != nil {
			t.Fatal(err)
		}
		if got := notesOf(t, &req); !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

func TestDecode_ASeriesOfExemplarsAloneIsKept(t *testing.T) {
	labels := []prompb.Label{{Name: "__name__", Value: "up"}}
	msg := prompb.WriteRequest{Timeseries: []prompb.TimeSeries{
		{Labels: labels}, {Labels: labels, Exemplars: []prompb.Exemplar{{Value: 2, Timestamp: 5}}},
	}}
	body, err := msg.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var d wire.Decoder
	var req request.Write
	if _, err := d.DecodeV1(body, &req); err != nil {
		t.Fatal(err)
	}
	if len(req.Series) != 1 || len(req.Exemplars) != 1 || req.Exemplars[0].Series != 0 || req.Exemplars[0].V != 2 {
		t.Errorf("got %+v", req)
	}
}

func TestDecode_ExemplarsAndMetadataAreBounded(t *testing.T) {
	for name, body := range map[string]string{
		"exemplars of 1.0": "0ad00f" + strings.Repeat("1a00", 1000),
		"metadata of 1.0":  strings.Repeat("1a00", 1000),
		"exemplars of 2.0": "2200" + "2ad20f" + "1200" + strings.Repeat("2200", 1000),
		"metadata of 2.0":  "2200" + strings.Repeat("2a06"+"1200"+"2a020801"+"2a06"+"1200"+"2a020802", 500),
	} {
		d := wire.Decoder{MaxBytes: 8000}
		decode := d.DecodeV1
		if strings.HasSuffix(name, "2.0") {
			decode = d.DecodeV2
		}
		var req request.Write
		if _, err := decode(unhex(body), &req); !errors.Is(err, wire.ErrTooLarge) {
			t.Errorf("%s: got %d exemplars, %d metadata, error %v; want ErrTooLarge", name, len(req.Exemplars),
				len(req.Metadata), err)
		}
	}
}
