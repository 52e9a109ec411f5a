package wire_test

import (
	"bytes"
	"encoding/hex"
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

// A series is what a decoder says of one, for comparison: labels in order, samples as bits.
type series struct {
	labels     string
	samples    string
	histograms string
}

func describe(labels []string, samples func(yield func(t int64, v float64)), histograms []prompb.Histogram) series {
	var b strings.Builder
	samples(func(t int64, v float64) { fmt.Fprintf(&b, "%d:%016x ", t, math.Float64bits(v)) })
	s := series{labels: fmt.Sprintf("%q", labels), samples: b.String()}
	for _, h := range histograms {
		again, err := h.Marshal() // to the bit: NaNs
		if err != nil {
			panic(err)
		}
		s.histograms += fmt.Sprintf("%x ", again)
	}
	return s
}

func decoded(t rapid.TB, req *request.Write) []series {
	var got []series
	histograms := req.Histograms
	for i, s := range req.Series {
		var labels []string
		if err := request.ParseLabels(req.LabelsOf(i), func(name, value []byte) error {
			labels = append(labels, string(name), string(value))
			return nil
		}); err != nil {
			t.Fatalf("label bytes %x: %v", req.LabelsOf(i), err)
		}
		var own []prompb.Histogram
		for ; len(histograms) > 0 && histograms[0].Series == i; histograms = histograms[1:] {
			var h prompb.Histogram
			if err := h.Unmarshal(histograms[0].Message); err != nil {
				t.Fatalf("histogram %x: %v", histograms[0].Message, err)
			}
			own = append(own, h)
		}
		got = append(got, describe(labels, func(yield func(int64, float64)) {
			for _, p := range req.Samples[s.From:s.To] {
				yield(p.T, p.V)
			}
		}, own))
	}
	if len(histograms) > 0 {
		t.Fatalf("%d histograms belong to no series, or are out of order", len(histograms))
	}
	return got
}

// parrot expects the series of a request that it was told before, or the first labels of them.
type parrot struct {
	t              rapid.TB
	known          [][]byte
	told           [][]byte
	first          bool
	expected, meet int // series
}

func (p *parrot) Reset() { p.known, p.told, p.meet = p.told, nil, 0 }

func (p *parrot) Expect(b []byte) int {
	if p.expected = 0; len(p.told) >= len(p.known) {
		return 0
	}
	known := p.known[len(p.told)]
	if p.first && len(known) > 2 && known[1] < 0x80 {
		known = known[:2+known[1]]
	}
	if bytes.HasPrefix(b, known) {
		p.expected = len(known)
	}
	return p.expected
}

func (p *parrot) Next(labels []byte, expected bool) {
	if expected {
		if len(labels) != p.expected {
			p.t.Fatalf("label bytes %x are said to be %d expected ones", labels, p.expected)
		}
		p.meet++
	}
	p.told = append(p.told, bytes.Clone(labels))
}

// compareV1 decodes a body with prompb and by hand, and fails unless both say the same. The latter is done again with a
// finder that expects what comes, and with one that expects less.
func compareV1(t rapid.TB, body []byte) {
	t.Helper()
	var want prompb.WriteRequest
	wantErr := want.Unmarshal(bytes.Clone(body))
	finder := &parrot{t: t}
	d := wire.Decoder{Finder: finder}
	var req request.Write
	c, err := d.DecodeV1(body, &req)
	if errors.Is(err, wire.ErrOtherVersion) {
		if wantErr == nil && len(want.Timeseries)+len(want.Metadata) > 0 {
			t.Fatalf("body %x: got error %v, prompb finds time series or metadata", body, err)
		}
		return
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("body %x: got error %v, prompb says %v", body, err, wantErr)
	}
	if err != nil {
		return
	}
	var wantSeries []series
	var wantNotes notes
	for _, m := range want.Metadata {
		wantNotes.metadata(m.MetricFamilyName, metadataType(int32(m.Type)), m.Help, m.Unit)
	}
	for _, ts := range want.Timeseries {
		if len(ts.Samples)+len(ts.Histograms)+len(ts.Exemplars) == 0 {
			continue
		}
		for _, e := range ts.Exemplars {
			var labels []string
			for _, l := range e.Labels {
				labels = append(labels, l.Name, l.Value)
			}
			wantNotes.exemplar(len(wantSeries), e.Timestamp, e.Value, labels)
		}
		var labels []string
		for _, l := range ts.Labels {
			labels = append(labels, l.Name, l.Value)
		}
		wantSeries = append(wantSeries, describe(labels, func(yield func(int64, float64)) {
			for _, s := range ts.Samples {
				yield(s.Timestamp, s.Value)
			}
		}, ts.Histograms))
	}
	if got := decoded(t, &req); !slices.Equal(got, wantSeries) {
		t.Fatalf("body %x:\n got %v\nwant %v", body, got, wantSeries)
	}
	if got := notesOf(t, &req); !slices.Equal(got, wantNotes.texts) {
		t.Fatalf("body %x:\n got %q\nwant %q", body, got, wantNotes.texts)
	}
	if c.Malformed != 0 || c.Refused.Refused != nil {
		t.Fatalf("body %x: malformed %d, %v", body, c.Malformed, c.Refused)
	}
	for _, finder.first = range []bool{false, true} {
		var again request.Write
		_, err := d.DecodeV1(body, &again)
		if got := decoded(t, &again); err != nil || !slices.Equal(got, wantSeries) || len(finder.told) != len(got) {
			t.Fatalf("body %x, with a finder that knows %x: %v\n got %v\nwant %v", body, finder.known, err, got, wantSeries)
		}
		for i, s := range again.Series {
			if !bytes.Equal(s.Labels, req.Series[i].Labels) {
				t.Fatalf("body %x: label bytes of series %d with a finder: %x, without: %x", body, i, s.Labels,
					req.Series[i].Labels)
			}
		}
	}
}

// compareV2 does so for a 2.0 body. Which series are malformed is decided here anew, from the documents.
func compareV2(t rapid.TB, body []byte) {
	t.Helper()
	var want writev2.Request
	wantErr := want.Unmarshal(bytes.Clone(body))
	var d wire.Decoder
	var req request.Write
	c, err := d.DecodeV2(body, &req)
	if errors.Is(err, wire.ErrOtherVersion) {
		if wantErr == nil && len(want.Timeseries)+len(want.Symbols) > 0 {
			t.Fatalf("body %x: got error %v, writev2 finds time series or symbols", body, err)
		}
		return
	}
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("body %x: got error %v, writev2 says %v", body, err, wantErr)
	}
	if err != nil {
		return
	}
	validRefs := func(refs []uint32) bool {
		return len(refs)%2 == 0 && !slices.ContainsFunc(refs, func(r uint32) bool { return int(r) >= len(want.Symbols) })
	}
	validMeta := func(r uint32) bool { return r == 0 || int(r) < len(want.Symbols) }
	symbols := func(refs ...uint32) (texts []string) {
		for _, r := range refs {
			if r == 0 {
				texts = append(texts, "")
			} else {
				texts = append(texts, want.Symbols[r])
			}
		}
		return texts
	}
	var wantSeries []series
	malformed, wantNotes := 0, notes{}
	firstIsEmpty := len(want.Symbols) == 0 || want.Symbols[0] == ""
	for _, ts := range want.Timeseries {
		sent := len(ts.Exemplars)
		ts.Exemplars = slices.DeleteFunc(ts.Exemplars, func(e writev2.Exemplar) bool {
			valid := firstIsEmpty && validRefs(e.LabelsRefs)
			if !valid {
				malformed++
			}
			return !valid
		})
		if !firstIsEmpty || !validRefs(ts.LabelsRefs) ||
			!validMeta(ts.Metadata.HelpRef) || !validMeta(ts.Metadata.UnitRef) ||
			len(ts.Samples) > 0 && len(ts.Histograms) > 0 || len(ts.Samples)+len(ts.Histograms)+sent == 0 {
			malformed++
			continue
		}
		labels := symbols(ts.LabelsRefs...)
		if m := ts.Metadata; m.Type != 0 || m.HelpRef != 0 || m.UnitRef != 0 {
			family, typ := "", metadataType(int32(m.Type))
			for i := 0; i < len(labels) && family == ""; i += 2 {
				if labels[i] == "__name__" {
					family = string(request.MetricFamily([]byte(labels[i+1]), typ))
				}
			}
			text := symbols(m.HelpRef, m.UnitRef)
			wantNotes.metadata(family, typ, text[0], text[1])
		}
		if len(ts.Samples)+len(ts.Histograms)+len(ts.Exemplars) == 0 {
			continue
		}
		histograms := make([]prompb.Histogram, len(ts.Histograms))
		for i, h := range ts.Histograms {
			message, err := h.Marshal()
			if err == nil {
				err = histograms[i].Unmarshal(message) // the messages differ in a field that is not kept
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range ts.Exemplars {
			wantNotes.exemplar(len(wantSeries), e.Timestamp, e.Value, symbols(e.LabelsRefs...))
		}
		wantSeries = append(wantSeries, describe(labels, func(yield func(int64, float64)) {
			for _, s := range ts.Samples {
				yield(s.Timestamp, s.Value)
			}
		}, histograms))
	}
	if got := decoded(t, &req); !slices.Equal(got, wantSeries) {
		t.Fatalf("body %x:\n got %v\nwant %v", body, got, wantSeries)
	}
	// Metadata that repeats that of the series before is left out.
	if got := notesOf(t, &req); !slices.Equal(slices.Compact(got), slices.Compact(wantNotes.texts)) {
		t.Fatalf("body %x:\n got %q\nwant %q", body, got, wantNotes.texts)
	}
	if c.Malformed != malformed {
		t.Fatalf("body %x: got %d malformed, want %d", body, c.Malformed, malformed)
	}
	if (c.Refused.Refused != nil) != (malformed > 0) {
		t.Fatalf("body %x: malformed %d, but refused %v", body, malformed, c.Refused)
	}
}

func TestDecodeV1_AgreesWithPrompb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { compareV1(t, builder{t}.bodyV1()) })
}

func TestDecodeV2_AgreesWithWritev2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { compareV2(t, builder{t}.bodyV2()) })
}

func FuzzDecodeV1(f *testing.F) {
	seed := rapid.Custom(func(t *rapid.T) []byte { return builder{t}.bodyV1() })
	for i := range 30 {
		f.Add(seed.Example(i))
	}
	f.Add(bodyV1(20, 6))
	f.Add(bodyV2(20, 6)) // announced as 1.0
	f.Fuzz(func(t *testing.T, body []byte) { compareV1(t, body) })
}

func FuzzDecodeV2(f *testing.F) {
	seed := rapid.Custom(func(t *rapid.T) []byte { return builder{t}.bodyV2() })
	for i := range 30 {
		f.Add(seed.Example(i))
	}
	f.Add(bodyV2(20, 6))
	f.Add(bodyV1(20, 6)) // announced as 2.0
	f.Fuzz(func(t *testing.T, body []byte) { compareV2(t, body) })
}

func TestDecodeV1_PassesOverWhatTheFinderExpects(t *testing.T) {
	finder := &parrot{t: t}
	d := wire.Decoder{Finder: finder}
	var req request.Write
	body := bodyV1(20, 6)
	for n, want := range []int{0, 20} {
		if _, err := d.DecodeV1(body, &req); err != nil || finder.meet != want || req.Finder != finder {
			t.Fatalf("time %d: %d series were expected, want %d; %v", n, finder.meet, want, err)
		}
	}
}

func TestDecodeV1_LabelBytesAreThoseOfTheBody(t *testing.T) {
	body := bodyV1(3, 4)
	var d wire.Decoder
	var req request.Write
	if _, err := d.DecodeV1(body, &req); err != nil {
		t.Fatal(err)
	}
	if len(req.Scratch) != 0 {
		t.Errorf("got %d bytes of scratch for a body that has all labels in one piece, want 0", len(req.Scratch))
	}
	for _, s := range req.Series {
		if !bytes.Contains(body, s.Labels) {
			t.Errorf("label bytes %q are not in the body", s.Labels)
		}
	}
}

func TestDecodeV2_LabelBytesEqualThoseOf1_0(t *testing.T) {
	var d1, d2 wire.Decoder
	var r1, r2 request.Write
	if _, err := d1.DecodeV1(bodyV1(50, 7), &r1); err != nil {
		t.Fatal(err)
	}
	if _, err := d2.DecodeV2(bodyV2(50, 7), &r2); err != nil {
		t.Fatal(err)
	}
	for i, s := range r1.Series {
		if got := r2.LabelsOf(i); !bytes.Equal(got, s.Labels) {
			t.Errorf("series %d: got %q from 2.0, %q from 1.0", i, got, s.Labels)
		}
	}
}

func TestDecodeV2_MalformedSeriesSaysWhy(t *testing.T) {
	sample := []writev2.Sample{{Value: 1, Timestamp: 1000}}
	histogram := []writev2.Histogram{{Sum: 1, Timestamp: 1000}}
	good := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: sample}
	for _, c := range []struct {
		name    string
		ts      writev2.TimeSeries
		refused int
		want    string
	}{
		{"odd", writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3}, Samples: sample}, 1, "3 label references, an odd number"},
		{"beyond", writev2.TimeSeries{LabelsRefs: []uint32{1, 9}, Samples: sample}, 1, "1 and 9 lie beyond the 5 symbols"},
		{"both", writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: sample, Histograms: histogram}, 2,
			"time series 1 (up{}): it has both samples and histograms"},
		{"neither", writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, 4}}, 0,
			`(up{job="x"}): it must have at least one sample, histogram or exemplar`},
		{"help", writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: sample, Metadata: writev2.Metadata{HelpRef: 5}}, 1,
			"metadata refers to a symbol that does not exist"},
	} {
		t.Run(c.name, func(t *testing.T) {
			msg := writev2.Request{
				Symbols:    []string{"", "__name__", "up", "job", "x"},
				Timeseries: []writev2.TimeSeries{good, c.ts, good},
			}
			body, err := msg.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			var d wire.Decoder
			var req request.Write
			counts, err := d.DecodeV2(body, &req)
			if err != nil {
				t.Fatal(err)
			}
			if len(req.Series) != 2 || len(req.Samples) != 2 {
				t.Errorf("got %d series with %d samples, want the 2 good ones with 1 each", len(req.Series), len(req.Samples))
			}
			if got := counts.Refused.Refused[request.ReasonMalformed]; counts.Malformed != 1 || got != c.refused {
				t.Errorf("got %d malformed series, %d samples refused, want 1 and %d", counts.Malformed, got, c.refused)
			}
			if ex := counts.Refused.Examples; len(ex) != 1 || !strings.Contains(ex[0].Error(), c.want) {
				t.Errorf("got example %v, want %q", ex, c.want)
			}
		})
	}
}

func TestDecode_ListsAreBounded(t *testing.T) {
	long := strings.Repeat("22"+"05"+"6162636465", 1) // a symbol of 5 bytes
	for _, c := range []struct {
		name string
		v2   bool
		body string
	}{
		{"series of 1.0", false, strings.Repeat("0a02"+"1200", 1000)},
		{"samples of 1.0", false, "0ad00f" + strings.Repeat("1200", 1000)},
		{"series of 2.0", true, "2200" + strings.Repeat("2a02"+"1200", 1000)},
		{"symbols", true, strings.Repeat("2200", 1000)},
		{"labels", true, "2200" + long + "2ad50f" + "0ad00f" + strings.Repeat("01", 2000) + "1200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := wire.Decoder{MaxBytes: 8000}
			decode := d.DecodeV1
			if c.v2 {
				decode = d.DecodeV2
			}
			var req request.Write
			_, err := decode(unhex(c.body), &req)
			if !errors.Is(err, wire.ErrTooLarge) {
				t.Errorf("got %d series, %d samples, error %v; want ErrTooLarge", len(req.Series), len(req.Samples), err)
			}
		})
	}
}

// One long symbol among short ones does not make the labels of all series long.
func TestDecodeV2_CountsLabelBytesWhereTheyMightBeTooMany(t *testing.T) {
	msg := writev2.Request{Symbols: []string{"", strings.Repeat("x", 500), "a", "b"}}
	for i := range 100 {
		refs := []uint32{2, 3}
		if i == 50 {
			refs = []uint32{2, 1}
		}
		msg.Timeseries = append(msg.Timeseries, writev2.TimeSeries{LabelsRefs: refs,
			Samples: []writev2.Sample{{Timestamp: 1}}})
	}
	body, err := msg.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	d := wire.Decoder{MaxBytes: 8000}
	var req request.Write
	for range 2 {
		if _, err := d.DecodeV2(body, &req); err != nil || len(req.Series) != 100 {
			t.Fatalf("got %d series, %v, want 100", len(req.Series), err)
		}
	}
	for i := range msg.Timeseries {
		msg.Timeseries[i].LabelsRefs = []uint32{2, uint32(1 + i%4/3)}
	}
	if body, err = msg.Marshal(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.DecodeV2(body, &req); !errors.Is(err, wire.ErrTooLarge) {
		t.Errorf("labels of 37 kB: got %v, want ErrTooLarge", err)
	}
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
