package mapping_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
)

func message(t rapid.TB, h mapping.Histogram, at int64) []byte {
	m := h.Message(at)
	b, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHistogram_ComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, at := anyHistogram.Draw(t, "h"), rapid.Int64().Draw(t, "at")
		got, gotAt, err := mapping.ParseHistogram(message(t, h, at))
		if err != nil || gotAt != at || !sameHistogram(got, h) {
			t.Fatalf("got %v at %d, %v, want %v at %d", got, gotAt, err, h, at)
		}
		again, _, err := mapping.ParseHistogram(store(t, got))
		if err != nil || !sameHistogram(again, h) {
			t.Fatalf("stored, it is %v, %v, want %v", again, err, h)
		}
	})
}

func TestParseHistogram_RefusesWhatContradictsItself(t *testing.T) {
	spans := []histogram.Span{{Offset: 0, Length: 2}}
	for name, h := range map[string]mapping.Histogram{
		"count below its buckets": {Int: &histogram.Histogram{Count: 1, PositiveSpans: spans,
			PositiveBuckets: []int64{1, 0}}},
		"a span without a bucket":  {Int: &histogram.Histogram{Count: 1, PositiveSpans: spans, PositiveBuckets: []int64{1}}},
		"negative count":           {Float: &histogram.FloatHistogram{Count: -1}},
		"unknown schema":           {Int: &histogram.Histogram{Schema: 77}},
		"custom bounds descending": {Int: &histogram.Histogram{Schema: -53, CustomValues: []float64{2, 1}}},
	} {
		if _, _, err := mapping.ParseHistogram(message(t, h, 1)); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if _, _, err := mapping.ParseHistogram([]byte{0xff}); !errors.Is(err, mapping.ErrInvalid) {
		t.Errorf("garbage: got %v, want ErrInvalid", err)
	}
}

func TestParseHistogram_ReducesResolutionsThatPrometheusDoesNotKnow(t *testing.T) {
	h := &histogram.Histogram{Schema: 9, Count: 3, PositiveSpans: []histogram.Span{{Offset: 1, Length: 2}},
		PositiveBuckets: []int64{1, 1}}
	for name, h := range map[string]mapping.Histogram{"integers": {Int: h.Copy()}, "floats": {Float: h.ToFloat(nil)}} {
		got, _, err := mapping.ParseHistogram(message(t, h, 1))
		if err != nil {
			t.Fatal(err)
		}
		if float := asFloat(got); float.Schema != 8 || float.Count != 3 || len(float.PositiveBuckets) != 1 {
			t.Errorf("%s: got %v", name, float)
		}
	}
}

func asFloat(h mapping.Histogram) *histogram.FloatHistogram {
	if h.Int != nil {
		return h.Int.ToFloat(nil)
	}
	return h.Float
}

func TestAppendStored_RefusesWhatIsTooLarge(t *testing.T) {
	h := mapping.Histogram{Float: &histogram.FloatHistogram{PositiveBuckets: make([]float64, mapping.MaxHistogramBytes/8)}}
	if _, err := h.AppendStored(nil); !errors.Is(err, mapping.ErrInvalid) ||
		!strings.Contains(err.Error(), "fewer buckets") {
		t.Errorf("got %v", err)
	}
}

// A reader who does not get the histogram before the first one is told what follows from it.
func TestRowDecoder_FirstHistogramSaysWhetherTheCountBeganAnew(t *testing.T) {
	for _, c := range []struct {
		before, first mapping.Histogram
		want          histogram.CounterResetHint
	}{
		{intHistogram(1, 0), intHistogram(2, 0), histogram.NotCounterReset},
		{intHistogram(2, 0), intHistogram(1, 0), histogram.CounterReset},
		{intHistogram(1, 0), intHistogram(2, histogram.GaugeType), histogram.GaugeType},
		{intHistogram(1, histogram.GaugeType), intHistogram(2, 0), histogram.UnknownCounterReset},
		{floatOf(intHistogram(1, 0)), floatOf(intHistogram(2, 0)), histogram.NotCounterReset},
		{floatOf(intHistogram(1, 0)), intHistogram(2, 0), histogram.UnknownCounterReset},
	} {
		var d mapping.RowDecoder
		d.Reset(0)
		list := mapping.AppendHistogramPoint(mapping.AppendHistogramPoint(nil, 1, store(t, c.before)), 2, store(t, c.first))
		if err := d.AddPoints(list, 1); err != nil {
			t.Fatal(err)
		}
		var p mapping.Points
		d.AppendPoints(&p, 2, math.MaxInt64)
		if got := asFloat(p.Histogram(0)).CounterResetHint; got != c.want {
			t.Errorf("%v after %v: got hint %d, want %d", c.first, c.before, got, c.want)
		}
	}
}

func intHistogram(i int64, hint histogram.CounterResetHint) mapping.Histogram {
	h := tsdbutil.GenerateTestHistogram(i)
	h.CounterResetHint = hint
	return mapping.Histogram{Int: h}
}

func floatOf(h mapping.Histogram) mapping.Histogram {
	return mapping.Histogram{Float: h.Int.ToFloat(nil)}
}

// What is taken can be stored, and comes back.
func FuzzParseHistogram(f *testing.F) {
	for i := range int64(3) {
		f.Add(message(f, intHistogram(i, 0), i))
		f.Add(message(f, floatOf(intHistogram(i, 0)), i))
		f.Add(message(f, mapping.Histogram{Int: tsdbutil.GenerateTestCustomBucketsHistogram(i)}, i))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, _, err := mapping.ParseHistogram(b)
		if err != nil {
			if !errors.Is(err, mapping.ErrInvalid) {
				t.Fatalf("got %v, want ErrInvalid", err)
			}
			return
		}
		stored, err := h.AppendStored(nil)
		if err != nil {
			return // too large
		}
		again, _, err := mapping.ParseHistogram(stored)
		if err != nil || !sameHistogram(h, again) {
			t.Fatalf("%v is stored as %x, and read as %v, %v", h, stored, again, err)
		}
	})
}
