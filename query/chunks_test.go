package query_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/query"
)

// decodeChunk appends the samples of a chunk, values as bits, after checking its bounds.
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
	it := chunk.Iterator(nil)
	for it.Next() != chunkenc.ValNone {
		ts, v := it.At()
		dst = append(dst, [2]int64{ts, int64(math.Float64bits(v))})
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
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
		step := rapid.OneOf(rapid.Just(int64(15000)), rapid.Int64Range(1, 1<<33))
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
