package query_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
)

// decodeChunk appends the samples of a chunk, values as bits, after checking its bounds, and that Prometheus's own
// encoder makes the same bytes.
func decodeChunk(t rapid.TB, dst [][2]int64, c query.Chunk) [][2]int64 {
	t.Helper()
	chunk, err := chunkenc.FromData(chunkenc.EncXOR, slices.Clone(c.Data))
	if err != nil {
		t.Fatal(err)
	}
	if n := chunk.NumSamples(); n < 1 || n > query.MaxChunkSamples {
		t.Fatalf("got a chunk of %d samples, want 1 to %d", n, query.MaxChunkSamples)
	}
	from := len(dst)
	theirs := chunkenc.NewXORChunk()
	appender, err := theirs.Appender()
	if err != nil {
		t.Fatal(err)
	}
	it := chunk.Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		ts, v := it.At()
		dst = append(dst, [2]int64{ts, int64(math.Float64bits(v))})
		appender.Append(0, ts, v)
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.Data, theirs.Bytes()) {
		t.Fatalf("of %x\n got %x\nwant %x", dst[from:], c.Data, theirs.Bytes())
	}
	if first, last := dst[from][0], dst[len(dst)-1][0]; first != c.MinT || last != c.MaxT {
		t.Fatalf("got bounds %d to %d for a chunk from %d to %d", c.MinT, c.MaxT, first, last)
	}
	return dst
}

func TestChunkEncoder_KeepsEveryBitAcrossRuns(t *testing.T) {
	var e query.ChunkEncoder // one for all checks, so that memory that is used again is part of the test
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.OneOf(rapid.SampledFrom([]uint64{0, 1 << 63, 0x7ff0000000000002, 0x7ff8000000000001,
			math.Float64bits(math.Inf(-1)), math.Float64bits(1.5)}), rapid.Uint64())
		// Where the change of the step needs one bit more, and anything.
		edges := []int64{1, 2, 1 << 13, 1<<13 + 1, 1<<13 + 2, 1 << 16, 1<<16 + 1, 1<<16 + 2, 1 << 19, 1<<19 + 1, 1<<19 + 2}
		step := rapid.OneOf(rapid.Just(int64(15000)), rapid.SampledFrom(edges), rapid.Int64Range(1, 1<<33))
		for range rapid.IntRange(1, 3).Draw(t, "series") {
			var want, got [][2]int64
			emit := func(c query.Chunk) error {
				got = decodeChunk(t, got, c)
				return nil
			}
			ts := rapid.Int64Range(0, 1<<41).Draw(t, "start")
			for range rapid.IntRange(0, 4).Draw(t, "runs") {
				var p mapping.Points
				for range rapid.IntRange(0, 150).Draw(t, "samples") {
					v := bits.Draw(t, "value")
					p.Append(ts, math.Float64frombits(v))
					want = append(want, [2]int64{ts, int64(v)})
					ts += step.Draw(t, "step")
				}
				if err := e.Encode(&p, emit); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Flush(emit); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got  %x\nwant %x", got, want)
			}
		}
	})
}

// Every sample has a time of 68 bits and a value of all its bits.
func TestChunkEncoder_LongestChunkComesBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var p mapping.Points
	at := int64(1)
	for i := range query.MaxChunkSamples {
		p.Append(at, math.Float64frombits(rnd.Uint64()))
		at += 1 + int64(i%2)<<50
	}
	var e query.ChunkEncoder
	var got [][2]int64
	err := e.Encode(&p, func(c query.Chunk) error {
		got = decodeChunk(t, got, c)
		return nil
	})
	if err != nil || len(got) != p.Len() {
		t.Fatalf("got %d samples, want %d: %v", len(got), p.Len(), err)
	}
	for i, s := range got {
		if s != [2]int64{p.T[i], int64(math.Float64bits(p.V[i]))} {
			t.Fatalf("sample %d: got %x, want %x at %x", i, s, math.Float64bits(p.V[i]), p.T[i])
		}
	}
}

// Chunks of numbers and native histograms, of counters that begin anew and of gauges, hold what went into them.
func TestChunkEncoder_HistogramsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var e query.ChunkEncoder
		var want []string
		var p mapping.Points
		for i := range rapid.IntRange(1, 400).Draw(t, "points") {
			at := int64(i) * 1000
			h := tsdbutil.GenerateTestHistogram(int64(rapid.IntRange(0, 400).Draw(t, "count")))
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				p.Append(at, float64(i))
				want = append(want, fmt.Sprint(at, float64(i)))
			case 1:
				p.AppendHistogram(at, mapping.Histogram{Float: h.ToFloat(nil)})
				want = append(want, fmt.Sprint(at, "float", h.Count, h.Sum, h.PositiveBuckets))
			case 2:
				h.CounterResetHint = histogram.GaugeType
				fallthrough
			default:
				p.AppendHistogram(at, mapping.Histogram{Int: h})
				want = append(want, fmt.Sprint(at, "int", h.Count, h.Sum, h.PositiveBuckets,
					h.CounterResetHint == histogram.GaugeType))
			}
		}
		var got []string
		emit := func(c query.Chunk) error {
			chunk, err := chunkenc.FromData(c.Encoding, slices.Clone(c.Data))
			if err != nil {
				return err
			}
			first := len(got)
			it := chunk.Iterator(nil)
			for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
				switch kind {
				case chunkenc.ValFloat:
					at, v := it.At()
					got = append(got, fmt.Sprint(at, v))
				case chunkenc.ValHistogram:
					at, h := it.AtHistogram(nil)
					h = h.Compact(0)
					got = append(got, fmt.Sprint(at, "int", h.Count, h.Sum, h.PositiveBuckets,
						h.CounterResetHint == histogram.GaugeType))
				case chunkenc.ValFloatHistogram:
					at, h := it.AtFloatHistogram(nil)
					own := tsdbutil.GenerateTestHistogram(int64(h.ZeroCount) - 2)
					if !h.Compact(0).Equals(own.ToFloat(nil)) {
						return fmt.Errorf("got %v, want %v", h, own)
					}
					got = append(got, fmt.Sprint(at, "float", own.Count, own.Sum, own.PositiveBuckets))
				}
			}
			if n := chunk.NumSamples(); n > query.MaxChunkSamples || it.Err() != nil || it.AtT() != c.MaxT ||
				!strings.HasPrefix(got[first], fmt.Sprint(c.MinT)) {
				return fmt.Errorf("chunk of %d samples to %d: %v", n, it.AtT(), it.Err())
			}
			return nil
		}
		if err := e.Encode(&p, emit); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(emit); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
	})
}

func TestChunkEncoder_ErrorOfEmitComesBackAndResetStartsAnew(t *testing.T) {
	var e query.ChunkEncoder
	var p mapping.Points
	for i := range int64(130) {
		p.Append(i, 1)
	}
	broken := errors.New("broken pipe")
	if err := e.Encode(&p, func(query.Chunk) error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("got error %v, want that of emit", err)
	}
	e.Reset()
	if err := e.Flush(func(c query.Chunk) error { return fmt.Errorf("unexpected chunk %v", c) }); err != nil {
		t.Fatal(err)
	}
}

func BenchmarkChunkEncoder(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, value := range map[string]func(i int) float64{
		"counter":  func(i int) float64 { return float64(1000 + 7*i) },
		"gauge":    func(int) float64 { return math.Round(rnd.Float64()*1000) / 10 },
		"constant": func(int) float64 { return 1 },
	} {
		b.Run(name, func(b *testing.B) {
			const samples = 24 * 240
			var p mapping.Points
			for i := range samples {
				p.Append(1_700_000_000_000+int64(i)*15000+int64(rnd.IntN(3)), value(i))
			}
			var e query.ChunkEncoder
			var size int
			emit := func(c query.Chunk) error { size += len(c.Data); return nil }
			b.ReportAllocs()
			for b.Loop() {
				size = 0
				if err := e.Encode(&p, emit); err != nil {
					b.Fatal(err)
				}
				if err := e.Flush(emit); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(samples*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
			b.ReportMetric(float64(size)/samples, "B/sample")
		})
	}
}
