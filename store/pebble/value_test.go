package pebble

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store"
)

// runLength is a toy packing: the length of the qualifier, then pairs of a count and a byte.
var runLength = Packing{
	Pack: func(dst, qualifier, value []byte) ([]byte, bool) {
		dst = append(dst, byte(len(qualifier)>>16), byte(len(qualifier)>>8), byte(len(qualifier)))
		n, last := byte(0), byte(0)
		for _, part := range [][]byte{qualifier, value} {
			for _, b := range part {
				if n > 0 && (b != last || n == 255) {
					dst = append(dst, n, last)
					n = 0
				}
				n, last = n+1, b
			}
		}
		return append(dst, n, last), true
	},
	Unpack: func(dst, packed []byte) ([]byte, int, error) {
		if len(packed) < 3 || len(packed)%2 == 0 {
			return dst, 0, errors.New("cut short")
		}
		for pairs := packed[3:]; len(pairs) > 0; pairs = pairs[2:] {
			for range pairs[0] {
				dst = append(dst, pairs[1])
			}
		}
		return dst, int(packed[0])<<16 | int(packed[1])<<8 | int(packed[2]), nil
	},
}

// encode is the column and the value of a cell.
func encode(p Packing, timestamp int64, qualifier, value []byte) (column, raw []byte) {
	e := cellEncoder{packing: p}
	column = bytes.Clone(e.column(qualifier))
	return column, e.payload(qualifier, value, true).append(nil, timestamp)
}

func TestValue_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts := rapid.Int64().Draw(t, "timestamp")
		some := rapid.SliceOf(rapid.SampledFrom([]byte{0, 1, 255}))
		qualifier, value := some.Draw(t, "qualifier"), some.Draw(t, "value")
		p := rapid.SampledFrom([]*Packing{{}, &runLength}).Draw(t, "packing")
		column, raw := encode(*p, ts, qualifier, value)
		if len(column) != columnLen(len(qualifier)) {
			t.Fatalf("column of %x is %x, %d bytes, want %d", qualifier, column, len(column), columnLen(len(qualifier)))
		}
		e := cellEncoder{packing: *p}
		if n := headerLen(ts) + e.payload(qualifier, value, true).len(); n != len(raw) {
			t.Fatalf("the value %x has %d bytes, want %d", raw, len(raw), n)
		}
		h, err := parseHeader(raw)
		if err != nil || h.timestamp != ts {
			t.Fatalf("parseHeader(%x) = %+v, %v, want %d", raw, h, err, ts)
		}
		out, n, err := p.decode([]byte("dst"), column, h)
		if want := "dst" + string(qualifier) + string(value); err != nil || n != len(qualifier) || string(out) != want {
			t.Fatalf("decode(%x) = %q, %d, %v, want %q, %d", raw, out, n, err, want, len(qualifier))
		}
	})
}

func TestValue_Golden(t *testing.T) {
	long := strings.Repeat("q", 20)
	for _, c := range []struct {
		packing   Packing
		timestamp int64
		qualifier string
		value     string
		want      string
		format    string
	}{
		{Packing{}, 0, "q", "v", "0076", "0:76@0"},
		{Packing{}, 255, "q", "v", "01ff76", "0:76@255"},
		{Packing{}, 1500000000000, "", "v", "06015d3ef7980076", "0:76@1500000000000"},
		{Packing{}, -1, "q", "v", "08ffffffffffffffff76", "0:76@-1"},
		{Packing{}, 255, long, "v", "11ff14" + hex.EncodeToString([]byte(long)) + "76", ""},
		{runLength, 255, long, "v", "21ff00001414710176", "2:00001414710176@255"},
		{runLength, 255, long[:16], "v", "01ff76", "0:76@255"},
		{runLength, 255, "abcdefghijklmnopqrst", "v",
			"11ff14" + hex.EncodeToString([]byte("abcdefghijklmnopqrst")) + "76", ""},
	} {
		_, got := encode(c.packing, c.timestamp, []byte(c.qualifier), []byte(c.value))
		if hex.EncodeToString(got) != c.want || c.format != "" && formatValue(got) != c.format {
			t.Errorf("value of %.9q at %d = %x (%s), want %s (%s)", c.qualifier, c.timestamp, got, formatValue(got), c.want,
				c.format)
		}
	}
}

func TestDecode_RefusesWhatDoesNotFit(t *testing.T) {
	var c columner
	long := c.column(bytes.Repeat([]byte("q"), 20))
	for _, test := range []struct {
		name    string
		packing Packing
		column  []byte
		value   string
		want    string
	}{
		{"plain encoding under a hashed qualifier", runLength, long, "0076", "encoding 0"},
		{"long encoding under a qualifier", runLength, []byte("q"), "10017176", "encoding 1"},
		{"length without end", runLength, long, "10ff", "does not end"},
		{"length beyond the cell", runLength, long, "101571717171", "does not end"},
		{"short qualifier", runLength, long, "10097171717171717171717171", "not that of its key"},
		{"another qualifier", runLength, long, "1014" + strings.Repeat("72", 20), "not that of its key"},
		{"packed without a packing", Packing{}, long, "2000001414710176", "without its packing"},
		{"packed and cut", runLength, long, "20000014147101", "unpack"},
		{"packed with a length beyond the cell", runLength, long, "20001414147101766", "not that of its key"},
		{"packed with another qualifier", runLength, long, "2000001414720176", "not that of its key"},
	} {
		raw, _ := hex.DecodeString(test.value)
		h, err := parseHeader(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = test.packing.decode(nil, test.column, h)
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: decode = %v, want ErrCorrupt with %q", test.name, err, test.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, q := range []string{"", "q", strings.Repeat("q", 17), strings.Repeat("q", 300)} {
		for _, p := range []Packing{{}, runLength} {
			column, raw := encode(p, 1500000000000, []byte(q), []byte("value"))
			f.Add(column, raw)
		}
	}
	f.Add([]byte("q"), []byte{})
	f.Add(bytes.Repeat([]byte("q"), hashedLen+1), []byte{0})
	f.Add([]byte("q"), []byte{0x09})
	f.Add([]byte("q"), []byte{0x36, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, column, raw []byte) {
		_ = formatValue(raw)
		h, err := parseHeader(raw)
		if err == nil {
			var out []byte
			var n int
			if out, n, err = runLength.decode(nil, column, h); err == nil {
				if n < 0 || n > len(out) || len(column) != columnLen(n) {
					t.Fatalf("decode(%x, %x) = %d bytes, %d of them the qualifier", column, raw, len(out), n)
				}
				return
			}
		}
		if !errors.Is(err, store.ErrCorrupt) {
			t.Fatalf("decode(%x, %x) = %v, want ErrCorrupt", column, raw, err)
		}
	})
}

// TestColumner_SecretsDiffer shows that keys of one store say nothing of those of another.
func TestColumner_SecretsDiffer(t *testing.T) {
	q := bytes.Repeat([]byte("q"), 20)
	var a columner
	b := columner{secret: [secretLen]byte{1}}
	if bytes.Equal(bytes.Clone(a.column(q)), b.column(q)) {
		t.Error("two secrets give one hashed qualifier")
	}
}
