package request_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/prometheus/prompb"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
)

type label struct{ name, value string }

func parseLabels(b []byte) (labels []label, err error) {
	err = request.ParseLabels(b, func(name, value []byte) error {
		labels = append(labels, label{string(name), string(value)})
		return nil
	})
	return labels, err
}

func TestParseLabels_ReadsWhatAppendLabelWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []label
		var b []byte
		for range rapid.IntRange(0, 5).Draw(t, "labels") {
			l := label{rapid.StringN(-1, -1, 300).Draw(t, "name"), rapid.StringN(-1, -1, 300).Draw(t, "value")}
			want = append(want, l)
			b = request.AppendLabel(b, l.name, l.value)
		}
		if got, err := parseLabels(b); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	})
}

func TestAppendLabel_IsTheLabelsOfATimeSeriesMessage(t *testing.T) {
	series := prompb.TimeSeries{Labels: []prompb.Label{
		{Name: "__name__", Value: "up"}, {Name: "path", Value: strings.Repeat("x", 300)},
	}}
	want, err := series.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, l := range series.Labels {
		got = request.AppendLabel(got, l.Name, l.Value)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestParseLabels_ReadsFieldsAsProtobufSays(t *testing.T) {
	for _, c := range []struct {
		name, b string
		want    []label
	}{
		{"no labels", "", nil},
		{"empty label", "\x0a\x00", []label{{"", ""}}},
		{"value only", "\x0a\x03\x12\x01v", []label{{"", "v"}}},
		{"value before name", "\x0a\x06\x12\x01v\x0a\x01n", []label{{"n", "v"}}},
		{"last of a repeated field", "\x0a\x09\x0a\x01m\x0a\x01n\x12\x01v", []label{{"n", "v"}}},
		{"unknown fields",
			"\x0a\x17\x18\x80\x01\x21\x00\x00\x00\x00\x00\x00\x00\x00\x2a\x01x\x35\x00\x00\x00\x00\x0a\x01n",
			[]label{{"n", ""}}},
	} {
		if got, err := parseLabels([]byte(c.b)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestParseLabels_RefusesWhatIsNoLabels(t *testing.T) {
	for name, b := range map[string]string{
		"another field":         "\x12\x00",
		"no length":             "\x0a",
		"length beyond the end": "\x0a\x05\x0a\x01n",
		"inner length beyond":   "\x0a\x03\x0a\x09n",
		"huge length":           "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"truncated field tag":   "\x0a\x01\x80",
		"truncated varint":      "\x0a\x02\x18\x80",
		"truncated fixed64":     "\x0a\x02\x21\x00",
		"truncated fixed32":     "\x0a\x02\x35\x00",
		"group":                 "\x0a\x01\x1b",
	} {
		if got, err := parseLabels([]byte(b)); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%s: got %q, %v, want mapping.ErrInvalid", name, got, err)
		}
	}
}

func TestParseLabels_EndsWithTheErrorOfTheFunction(t *testing.T) {
	b := request.AppendLabel(request.AppendLabel(nil, "a", "1"), "b", "2")
	want := errors.New("enough")
	calls := 0
	err := request.ParseLabels(b, func(_, _ []byte) error { calls++; return want })
	if err != want || calls != 1 {
		t.Errorf("got %v after %d calls, want %v after 1", err, calls, want)
	}
}

func TestWriteResult_KeepsAFewExamples(t *testing.T) {
	var r request.Result
	for i := range 100 {
		r.Refuse(request.ReasonTimestamp, 2, fmt.Errorf("sample %d", i))
	}
	if r.Refused[request.ReasonTimestamp] != 200 || len(r.Examples) == 0 || len(r.Examples) > 20 {
		t.Errorf("got %v and %d examples, want 200 and a few", r.Refused, len(r.Examples))
	}
}

func FuzzParseLabels(f *testing.F) {
	f.Add(request.AppendLabel(request.AppendLabel(nil, "__name__", "up"), "a", ""))
	f.Add([]byte("\x0a\x06\x12\x01v\x0a\x01n"))
	f.Add([]byte("\x0a\x07\x0a\x01n\x18\x80\x01\x1b"))
	f.Add([]byte("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		labels, err := parseLabels(b)
		if err != nil {
			if !errors.Is(err, mapping.ErrInvalid) {
				t.Fatalf("got %v, want mapping.ErrInvalid", err)
			}
			return
		}
		var again []byte
		for _, l := range labels {
			again = request.AppendLabel(again, l.name, l.value)
		}
		if got, err := parseLabels(again); err != nil || !slices.Equal(got, labels) {
			t.Fatalf("labels %q read back as %q, %v", labels, got, err)
		}
		// What the protobuf library reads, it reads in the same way; it checks more, such as field numbers.
		var series prompb.TimeSeries
		if series.Unmarshal(b) != nil {
			return
		}
		var want []label
		for _, l := range series.Labels {
			want = append(want, label{l.Name, l.Value})
		}
		if !slices.Equal(labels, want) {
			t.Fatalf("got %q, want %q", labels, want)
		}
	})
}

func TestFlat_ComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r request.Write
		for range rapid.IntRange(0, 4).Draw(t, "series") {
			from := len(r.Samples)
			for range rapid.IntRange(0, 3).Draw(t, "samples") {
				r.Samples = append(r.Samples, request.Sample{
					T: rapid.Int64().Draw(t, "t"), V: math.Float64frombits(rapid.Uint64().Draw(t, "v")),
				})
			}
			for range rapid.IntRange(0, 2).Draw(t, "histograms") {
				message := rapid.SliceOf(rapid.Byte()).Draw(t, "message")
				r.Histograms = append(r.Histograms, request.Histogram{Series: len(r.Series), Message: message})
			}
			raw := rapid.SliceOf(rapid.Byte()).Draw(t, "labels")
			r.Series = append(r.Series, request.Series{Labels: raw, From: from, To: len(r.Samples)})
		}
		if len(r.Series) > 0 {
			for range rapid.IntRange(0, 3).Draw(t, "exemplars") {
				r.Exemplars = append(r.Exemplars, request.Exemplar{
					Series: rapid.IntRange(0, len(r.Series)-1).Draw(t, "exemplar of"), T: rapid.Int64().Draw(t, "t"),
					V: math.Float64frombits(rapid.Uint64().Draw(t, "v")), Labels: rapid.SliceOf(rapid.Byte()).Draw(t, "labels"),
				})
			}
		}
		b := r.AppendFlat(nil, nil)
		var got request.Write
		if err := got.ParseFlat(b); err != nil || !bytes.Equal(got.AppendFlat(nil, nil), b) || len(got.Series) != len(r.Series) ||
			len(got.Exemplars) != len(r.Exemplars) ||
			!slices.EqualFunc(got.Histograms, r.Histograms, func(a, b request.Histogram) bool {
				return a.Series == b.Series && bytes.Equal(a.Message, b.Message)
			}) {
			t.Fatalf("got %+v, %v, want %+v", got, err, r)
		}
		for cut := range b {
			if err := got.ParseFlat(b[:cut]); !errors.Is(err, mapping.ErrCorrupt) {
				t.Fatalf("%d of %d bytes: got %v, want mapping.ErrCorrupt", cut, len(b), err)
			}
		}
	})
}

func FuzzParseFlat(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	f.Add([]byte{1, 1, 'a', 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'h', 0})
	f.Add([]byte{1, 1, 'a', 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 'b'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var r request.Write
		if err := r.ParseFlat(b); err != nil && !errors.Is(err, mapping.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func TestMetricFamily_LeavesTheSuffixOff(t *testing.T) {
	for _, c := range [][3]string{
		{"a_bucket", "histogram", "a"}, {"a_count", "histogram", "a"}, {"a_sum", "histogram", "a"}, {"a", "histogram", "a"},
		{"a_count", "summary", "a"}, {"a_bucket", "summary", "a_bucket"}, {"a_gcount", "gaugehistogram", "a"},
		{"a_count", "counter", "a_count"}, {"a_total", "counter", "a_total"}, {"_sum", "summary", "_sum"}, {"", "", ""},
	} {
		if got := request.MetricFamily([]byte(c[0]), c[1]); string(got) != c[2] {
			t.Errorf("%s of a %s: got %q, want %q", c[0], c[1], got, c[2])
		}
	}
}

func TestFormatSeries_IsShortAndReadable(t *testing.T) {
	b := request.AppendLabel(nil, "__name__", "up")
	b = request.AppendLabel(b, "job", "a\"b\xff")
	if got, want := request.FormatSeries(b), `up{job="a\"b\xff"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for range 1000 {
		b = request.AppendLabel(b, strings.Repeat("ü", 300), "\xff\x00")
	}
	if got := request.FormatSeries(b); len(got) > 600 || !utf8.ValidString(got) {
		t.Errorf("got %d bytes: %q", len(got), got)
	}
}
