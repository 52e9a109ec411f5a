package pebble

import (
	"bytes"
	"cmp"
	"errors"
	"strings"
	"testing"

	lsm "github.com/cockroachdb/pebble/v2"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store"
)

func TestKey_Golden(t *testing.T) {
	long := strings.Repeat("q", 253)
	for _, c := range []struct {
		row, qualifier string
		want, format   string
	}{
		{"r", "q", "\x02r\x00\x03q\x03", "2/72/3:71"},
		{"r", "", "\x02r\x00\x03\x02", "2/72/3:"},
		{"", "", "\x02\x00\x03\x02", "2//3:"},
		{"a\x00\xff", "\x00\x02", "\x02a\x00\xff\x00\x03\x00\x02\x04", "2/6100ff/3:0002"},
		{"r", long[:252], "\x02r\x00\x03" + long[:252] + "\xfe", "2/72/3:" + strings.Repeat("71", 252)},
		{"r", long, "\x02r\x00\x03" + long + "\x00\x00\x01\x03\xff", "2/72/3:" + strings.Repeat("71", 253)},
	} {
		got := appendKey(nil, 2, []byte(c.row), 3, []byte(c.qualifier))
		if string(got) != c.want {
			t.Errorf("appendKey(%q, %.9q) = %q, want %q", c.row, c.qualifier, got, c.want)
		}
		if n := prefixLen([]byte(c.row)) + suffixLen([]byte(c.qualifier)); n != len(got) {
			t.Errorf("lengths of %q add up to %d, want %d", got, n, len(got))
		}
		if s := formatKey(got); s != c.format {
			t.Errorf("formatKey(%q) = %s, want %s", got, s, c.format)
		}
	}
	if s := formatKey(appendPrefix(nil, 2, []byte("r"))); s != "2/72/" {
		t.Errorf("formatKey of a prefix = %s, want 2/72/", s)
	}
}

// genKey draws addresses that are close to each other.
func genKey(t *rapid.T, label string) cellKey {
	text := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 3, 'a', 254, 255}), 0, 5)
	k := cellKey{
		table: rapid.ByteRange(0, 2).Draw(t, label+" table"), row: text.Draw(t, label+" row"),
		family: rapid.ByteRange(0, 2).Draw(t, label+" family"), qualifier: text.Draw(t, label+" qualifier"),
	}
	pad := rapid.SampledFrom([]int{0, 0, 0, 246, 248, 250, 252, 254, 70000}).Draw(t, label+" pad")
	k.qualifier = append(bytes.Repeat([]byte{'p'}, pad), k.qualifier...)
	return k
}

func (k cellKey) encode() []byte { return appendKey(nil, k.table, k.row, k.family, k.qualifier) }

func compareCells(a, b cellKey) int {
	return cmp.Or(cmp.Compare(a.table, b.table), bytes.Compare(a.row, b.row), cmp.Compare(a.family, b.family),
		bytes.Compare(a.qualifier, b.qualifier))
}

func TestComparer_OrdersAsAddresses(t *testing.T) {
	c := newComparer()
	rapid.Check(t, func(t *rapid.T) {
		ka, kb := genKey(t, "a"), genKey(t, "b")
		a, b := ka.encode(), kb.encode()
		want := compareCells(ka, kb)
		if got := c.Compare(a, b); got != want {
			t.Fatalf("Compare(%q, %q) = %d, want %d", a, b, got, want)
		}
		if got := c.Equal(a, b); got != (want == 0) {
			t.Fatalf("Equal(%q, %q) = %t", a, b, got)
		}
		if x, y := c.AbbreviatedKey(a), c.AbbreviatedKey(b); x < y && want >= 0 || x > y && want <= 0 {
			t.Fatalf("AbbreviatedKey(%q) = %x, AbbreviatedKey(%q) = %x", a, x, b, y)
		}
		pa := a[:c.Split(a)]
		if !bytes.Equal(pa, appendPrefix(nil, ka.table, ka.row)) || c.Split(pa) != len(pa) {
			t.Fatalf("prefix of %q is %q", a, pa)
		}
		if c.Compare(pa, a) >= 0 {
			t.Fatalf("the prefix of %q does not come before it", a)
		}
		if x := c.Compare(pa, b); bytes.Equal(pa, b[:c.Split(b)]) && x >= 0 || !bytes.Equal(pa, b[:c.Split(b)]) && x != want {
			t.Fatalf("Compare(prefix %q, %q) = %d, want %d", pa, b, x, want)
		}
	})
}

func TestComparer_SeparatorsAreValidAndBetween(t *testing.T) {
	c := newComparer()
	rapid.Check(t, func(t *rapid.T) {
		a, b := genKey(t, "a").encode(), genKey(t, "b").encode()
		if rapid.Bool().Draw(t, "bare b") {
			b = b[:c.Split(b)]
		}
		if rapid.Bool().Draw(t, "bare a") {
			a = a[:c.Split(a)]
		}
		if c.Compare(a, b) > 0 {
			a, b = b, a
		}
		dst := []byte("dst")
		if c.Compare(a, b) < 0 {
			k := c.Separator(dst, a, b)[3:]
			if c.Compare(a, k) > 0 || c.Compare(k, b) >= 0 || c.ValidateKey(k) != nil || len(k) > len(a)+1 {
				t.Fatalf("Separator(%q, %q) = %q", a, b, k)
			}
		}
		if k := c.Successor(dst, a)[3:]; c.Compare(a, k) > 0 || c.ValidateKey(k) != nil {
			t.Fatalf("Successor(%q) = %q", a, k)
		}
		p := a[:c.Split(a)]
		k := c.ImmediateSuccessor(dst, p)[3:]
		if c.Compare(p, k) >= 0 || c.Split(k) != len(k) || c.ValidateKey(k) != nil {
			t.Fatalf("ImmediateSuccessor(%q) = %q", p, k)
		}
		if q := b[:c.Split(b)]; c.Compare(p, q) < 0 && c.Compare(q, k) < 0 {
			t.Fatalf("%q is between %q and its ImmediateSuccessor %q", q, p, k)
		}
	})
}

func TestComparer_PassesTheTreesOwnCheck(t *testing.T) {
	var prefixes, suffixes [][]byte
	for _, row := range []string{"", "a", "a\x00", "a\x00\x00", "a\x00b", "ab", "b", "\x00", "\xff", "\xff\xff"} {
		prefixes = append(prefixes, appendPrefix(nil, 1, []byte(row)))
	}
	long := strings.Repeat("l", 300)
	for _, q := range []string{"", "\x00", "a", "a\x00", "b", "\xff", long[:251], long[:252], long[:253], long} {
		suffixes = append(suffixes, appendSuffix(nil, 1, []byte(q)), appendSuffix(nil, 2, []byte(q)))
	}
	if err := lsm.CheckComparer(newComparer(), prefixes, suffixes); err != nil {
		t.Error(err)
	}
	if got := newComparer().Successor(nil, nil); newComparer().ValidateKey(got) != nil {
		t.Errorf("Successor of the empty key = %q", got)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, row := range []string{"r", "", "a\x00\xff"} {
		for _, q := range []string{"", "q", strings.Repeat("\x00", 300)} {
			f.Add(appendKey(nil, 1, []byte(row), 1, []byte(q)))
		}
	}
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 300))
	c := newComparer()
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := c.Split(b); n < 0 || n > len(b) {
			t.Fatalf("Split(%x) = %d", b, n)
		}
		if !c.Equal(b, b) || c.Compare(b, b) != 0 {
			t.Fatalf("%x differs from itself", b)
		}
		_, _ = formatKey(b), c.AbbreviatedKey(b)
		k, err := parseKey(b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("parseKey(%x) = %v, want ErrCorrupt", b, err)
			}
			return
		}
		if again := k.encode(); !bytes.Equal(again, b) {
			t.Fatalf("parseKey(%x) = %+v, which encodes as %x", b, k, again)
		}
	})
}

func TestValue_RoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts := rapid.Int64().Draw(t, "timestamp")
		value := rapid.SliceOf(rapid.Byte()).Draw(t, "value")
		b := appendValue(nil, ts, value)
		if len(b) != valueLen(ts, value) {
			t.Fatalf("appendValue of %d gave %d bytes, valueLen %d", ts, len(b), valueLen(ts, value))
		}
		gotTS, got, err := parseValue(b)
		if err != nil || gotTS != ts || !bytes.Equal(got, value) {
			t.Fatalf("parseValue(%x) = %d, %x, %v, want %d, %x", b, gotTS, got, err, ts, value)
		}
	})
}

func TestValue_Golden(t *testing.T) {
	for _, c := range []struct {
		timestamp    int64
		want, format string
	}{
		{0, "\x00v", "76@0"},
		{255, "\x01\xffv", "76@255"},
		{1500000000000, "\x06\x01\x5d\x3e\xf7\x98\x00v", "76@1500000000000"},
		{-1, "\x08\xff\xff\xff\xff\xff\xff\xff\xffv", "76@-1"},
	} {
		got := appendValue(nil, c.timestamp, []byte("v"))
		if string(got) != c.want || formatValue(got) != c.format {
			t.Errorf("appendValue(%d) = %q (%s), want %q (%s)", c.timestamp, got, formatValue(got), c.want, c.format)
		}
	}
}

func FuzzParseValue(f *testing.F) {
	f.Add(appendValue(nil, 1500000000000, []byte("value")))
	f.Add([]byte{})
	f.Add([]byte{0x09})
	f.Add([]byte{0x16, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = formatValue(b)
		ts, value, err := parseValue(b)
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Fatalf("parseValue(%x) = %v, want ErrCorrupt", b, err)
			}
			return
		}
		againTS, again, err := parseValue(appendValue(nil, ts, value))
		if err != nil || againTS != ts || !bytes.Equal(again, value) {
			t.Fatalf("%x does not survive a round trip", b)
		}
	})
}
