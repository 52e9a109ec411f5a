package mapping_test

import (
	"math"
	"testing"

	"github.com/promtsd/promtsd/mapping"
)

// rowPoints is a row as a scrape every 15 seconds makes it, with the scrape's jitter.
const rowPoints = 240

func benchmarkRow(value func(i int) float64) (qualifiers, values [][]byte) {
	for i := range rowPoints {
		value, flags := mapping.AppendValue(nil, value(i))
		values = append(values, value)
		qualifiers = append(qualifiers, mapping.AppendQualifier(nil, uint32(i*15_000+i*7%11), flags))
	}
	return qualifiers, values
}

var rowShapes = []struct {
	name  string
	value func(i int) float64
}{
	{"gauge", func(i int) float64 { return 0.1 * float64(i*i%977) }},
	{"counter", func(i int) float64 { return float64(1_000_000 + 37*i) }},
	{"mixed", func(i int) float64 {
		x := float64(i)
		return [...]float64{float64(i % 3), 200 * x, 1e6 * x, 0.5 * x, math.Pi * x}[i*i%5]
	}},
}

func BenchmarkRowDecoder_SingleCells(b *testing.B) {
	for _, shape := range rowShapes {
		b.Run(shape.name, func(b *testing.B) {
			qualifiers, values := benchmarkRow(shape.value)
			benchmarkDecode(b, func(d *mapping.RowDecoder) error {
				for i, q := range qualifiers {
					if err := d.Add(q, 1600000000000, values[i]); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

func BenchmarkRowDecoder_CompactedCell(b *testing.B) {
	for _, shape := range rowShapes {
		b.Run(shape.name, func(b *testing.B) {
			qualifiers, values := benchmarkRow(shape.value)
			qualifier, value := concat(qualifiers), append(concat(values), 0)
			benchmarkDecode(b, func(d *mapping.RowDecoder) error {
				return d.Add(qualifier, 1600000000000, value)
			})
		})
	}
}

func BenchmarkRowDecoder_OutOfOrder(b *testing.B) {
	// A compacted cell with every point but one in eight, and these as cells of their own.
	qualifiers, values := benchmarkRow(rowShapes[2].value)
	var qualifier, value []byte
	for i, q := range qualifiers {
		if i%8 != 0 {
			qualifier, value = append(qualifier, q...), append(value, values[i]...)
		}
	}
	value = append(value, 0)
	benchmarkDecode(b, func(d *mapping.RowDecoder) error {
		for i := 0; i < len(qualifiers); i += 8 {
			if err := d.Add(qualifiers[i], 1600000000000, values[i]); err != nil {
				return err
			}
		}
		return d.Add(qualifier, 1600000000000, value)
	})
}

func benchmarkDecode(b *testing.B, add func(*mapping.RowDecoder) error) {
	var d mapping.RowDecoder
	var points mapping.Points
	b.ReportAllocs()
	for b.Loop() {
		d.Reset(1600000000 / 3600 * 3600)
		if err := add(&d); err != nil {
			b.Fatal(err)
		}
		points.Reset()
		d.AppendPoints(&points, 0, mapping.MaxTime)
	}
	if points.Len() != rowPoints {
		b.Fatalf("got %d points, want %d", points.Len(), rowPoints)
	}
	b.ReportMetric(rowPoints*float64(b.N)/b.Elapsed().Seconds()/1e6, "Msamples/s")
}

func BenchmarkAppendValue(b *testing.B) {
	for _, shape := range rowShapes {
		b.Run(shape.name, func(b *testing.B) {
			var in [rowPoints]float64
			for i := range in {
				in[i] = shape.value(i)
			}
			buf := make([]byte, 0, 12*rowPoints)
			b.ReportAllocs()
			for b.Loop() {
				buf = buf[:0]
				for i, v := range in {
					var flags byte
					buf, flags = mapping.AppendValue(buf, v)
					buf = mapping.AppendQualifier(buf, uint32(i), flags)
				}
			}
			b.ReportMetric(rowPoints*float64(b.N)/b.Elapsed().Seconds()/1e6, "Msamples/s")
		})
	}
}

func BenchmarkAppendRowKey(b *testing.B) {
	s := mapping.Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3, SaltWidth: 1, SaltBuckets: 20}
	tags := make([]mapping.Tag, 10)
	for i := range tags {
		tags[i] = mapping.Tag{Key: mapping.UID(i + 1), Value: mapping.UID(i + 1000)}
	}
	tsuid := s.AppendTSUID(nil, 1, tags)
	row := s.AppendRowKey(nil, tsuid, 0)
	b.Run("salted", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			row = s.AppendRowKey(row[:0], tsuid, 1599998400)
		}
	})
	b.Run("tsuid of row", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tsuid, _, _ = s.AppendRowTSUID(tsuid[:0], row)
		}
	})
}

func concat(parts [][]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
