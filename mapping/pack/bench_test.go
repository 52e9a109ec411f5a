package pack_test

import (
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/promtsd/promtsd/mapping/pack"
)

func BenchmarkAppend(b *testing.B) {
	benchmarkCells(b, func(b *testing.B, cells []cell) {
		var buf []byte
		i, samples, bytes := 0, 0, 0
		for b.Loop() {
			c := cells[i%len(cells)]
			buf, _ = pack.Append(buf[:0], c.qualifier, c.value)
			i, samples, bytes = i+1, samples+c.points, bytes+len(buf)
		}
		b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
		b.ReportMetric(float64(bytes)/float64(samples), "bytes/sample")
	})
}

func BenchmarkExpand(b *testing.B) {
	benchmarkCells(b, func(b *testing.B, cells []cell) {
		packed := make([][]byte, len(cells))
		for i, c := range cells {
			packed[i], _ = pack.Append(nil, c.qualifier, c.value)
		}
		var buf []byte
		i, samples := 0, 0
		for b.Loop() {
			buf, _, _ = pack.Expand(buf[:0], packed[i%len(packed)])
			i, samples = i+1, samples+cells[0].points
		}
		b.ReportMetric(float64(samples)/b.Elapsed().Seconds(), "samples/s")
	})
}

// benchmarkCells benchmarks cells of each shape, and of all.
func benchmarkCells(b *testing.B, run func(b *testing.B, cells []cell)) {
	all := makeSeries(parts * targets)
	for _, points := range []int{240, 20} {
		byShape := map[string][]cell{}
		for i, s := range all {
			if i%7 == 0 {
				byShape[s.shape] = append(byShape[s.shape], s.cell(points))
				byShape["all"] = append(byShape["all"], s.cell(points))
			}
		}
		for _, name := range append(shapeNames(), "all") {
			b.Run(fmt.Sprintf("points=%d/%s", points, name), func(b *testing.B) {
				b.ReportAllocs()
				run(b, byShape[name])
			})
		}
	}
}

// BenchmarkBlock measures what cells take on the disk: blocks of them, each behind its key, in zstd, as the embedded
// store has them. Blocks of one shape each are the kindest to zstd; cells as they are, plain, are there to compare.
func BenchmarkBlock(b *testing.B) {
	const blockBytes = 32 << 10
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	all := makeSeries(10_000)
	appendPacked := func(dst []byte, c cell) []byte {
		dst, _ = pack.Append(dst, c.qualifier, c.value)
		return dst
	}
	appendPlain := func(dst []byte, c cell) []byte { return append(append(dst, c.qualifier...), c.value...) }
	for _, points := range []int{240, 20} {
		for _, form := range []struct {
			name   string
			append func(dst []byte, c cell) []byte
		}{{"packed", appendPacked}, {"plain", appendPlain}} {
			for _, name := range append(shapeNames(), "all") {
				b.Run(fmt.Sprintf("points=%d/%s/%s", points, form.name, name), func(b *testing.B) {
					samples, bytes := 0, 0
					var block, buf []byte
					flush := func() {
						bytes += len(encoder.EncodeAll(block, buf[:0]))
						block = block[:0]
					}
					for b.Loop() {
						for _, s := range all {
							if name != "all" && s.shape != name {
								continue
							}
							block = form.append(append(block, s.key...), s.cell(points))
							samples += points
							if len(block) >= blockBytes {
								flush()
							}
						}
						flush()
					}
					b.ReportMetric(float64(bytes)/float64(samples), "bytes/sample")
				})
			}
		}
	}
}
