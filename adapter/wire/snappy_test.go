package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/s2"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/adapter/wire"
)

func TestInflate_RestoresWhatWasDeflated(t *testing.T) {
	var buf, block []byte // used again
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "piece")
		content := bytes.Repeat(piece, rapid.IntRange(0, 300).Draw(t, "times"))
		block = wire.Deflate(block, content)
		for _, b := range [][]byte{block, snappy.Encode(nil, content)} {
			got, err := wire.Inflate(buf, b, len(content))
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("got %d bytes, error %v; want the %d bytes deflated", len(got), err, len(content))
			}
			buf = got
		}
		if got, err := snappy.Decode(nil, block); err != nil || !bytes.Equal(got, content) {
			t.Fatalf("snappy itself got %d bytes, error %v", len(got), err)
		}
	})
}

func TestInflate_ClaimIsCheckedBeforeMemoryIsTaken(t *testing.T) {
	claim := func(n uint64, rest int) []byte { return append(binary.AppendUvarint(nil, n), make([]byte, rest)...) }
	for _, c := range []struct {
		name  string
		block []byte
		want  error
	}{
		{"more than the limit", claim(1<<20+1, 1<<17), wire.ErrTooLarge},
		{"more than the block can hold", claim(1<<20, 100), wire.ErrMalformed},
		{"beyond 32 bits", claim(math.MaxUint64, 100), wire.ErrMalformed},
		{"empty", nil, wire.ErrMalformed},
		{"framed stream", []byte("\xff\x06\x00\x00sNaPpY"), wire.ErrMalformed},
	} {
		got, err := wire.Inflate(nil, c.block, 1<<20)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %d bytes, error %v, want %v", c.name, len(got), err, c.want)
		}
	}
}

func FuzzInflate(f *testing.F) {
	f.Add([]byte{})
	f.Add(snappy.Encode(nil, bytes.Repeat([]byte("abcdefgh"), 100)))
	f.Fuzz(func(t *testing.T, block []byte) {
		const limit = 1 << 20
		got, err := wire.Inflate(nil, block, limit)
		if n, e := snappy.DecodedLen(block); e != nil || n > limit {
			if err == nil {
				t.Fatalf("block %x of %d bytes was inflated", block, n)
			}
			return
		}
		want, wantErr := snappy.Decode(nil, block)
		if err == nil && wantErr != nil {
			want, wantErr = s2.Decode(nil, block) // the repeat code is taken
		}
		if (err == nil) != (wantErr == nil) || !bytes.Equal(got, want) {
			t.Fatalf("block %x: got %x, %v; snappy says %x, %v", block, got, err, want, wantErr)
		}
	})
}

func BenchmarkInflate(b *testing.B) {
	content := bodyV1(2000, 8)
	block := snappy.Encode(nil, content)
	buf := make([]byte, len(content))
	for name, inflate := range map[string]func() ([]byte, error){
		"golang": func() ([]byte, error) { return snappy.Decode(buf, block) },
		"s2":     func() ([]byte, error) { return wire.Inflate(buf, block, len(content)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := inflate(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(2000*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}
