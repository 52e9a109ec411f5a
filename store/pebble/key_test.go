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
	var c columner
	long := strings.Repeat("q", 300)
	for _, test := range []struct {
		row, qualifier string
		want, format   string
	}{
		{"r", "q", "\x02r\x00\x03q\x03", "2/72/3:71"},
		{"r", "", "\x02r\x00\x03\x02", "2/72/3:"},
		{"", "", "\x02\x00\x03\x02", "2//3:"},
		{"a\x00\xff", "\x00\x02", "\x02a\x00\xff\x00\x03\x00\x02\x04", "2/6100ff/3:0002"},
		{"r", long[:16], "\x02r\x00\x03" + long[:16] + "\x12", "2/72/3:" + strings.Repeat("71", 16)},
		// As sha256sum says of 16 zero bytes and the qualifier.
		{"r", long[:17], "\x02r\x00\x03qqqqqqqqq" + "\x8a\x0d\x76\x24\xfd\x4d\x59\x0b" + "\x13", ""},
		{"r", long, "\x02r\x00\x03qqqqqqqqq" + "\xe7\x80\x31\xfb\x2f\xe2\xeb\x8f" + "\x13", ""},
	} {
		column := c.column([]byte(test.qualifier))
		got := appendKey(nil, 2, []byte(test.row), 3, column)
		if string(got) != test.want {
			t.Errorf("key of %q, %.9q = %q, want %q", test.row, test.qualifier, got, test.want)
		}
		if n := prefixLen([]byte(test.row)) + suffixLen(columnLen(len(test.qualifier))); n != len(got) {
			t.Errorf("lengths of %q add up to %d, want %d", got, n, len(got))
		}
		if s := formatKey(got); test.format != "" && s != test.format {
			t.Errorf("formatKey(%q) = %s, want %s", got, s, test.format)
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
		family: rapid.ByteRange(0, 2).Draw(t, label+" family"), column: text.Draw(t, label+" column"),
	}
	pad := rapid.SampledFrom([]int{0, 0, 0, 10, 11, 12}).Draw(t, label+" pad")
	k.column = append(bytes.Repeat([]byte{'p'}, pad), k.column...)
	return k
}

func (k cellKey) encode() []byte { return appendKey(nil, k.table, k.row, k.family, k.column) }

func compareAddresses(a, b cellKey) int {
	return cmp.Or(cmp.Compare(a.table, b.table), bytes.Compare(a.row, b.row), cmp.Compare(a.family, b.family),
		bytes.Compare(a.column, b.column))
}

func TestComparer_OrdersAsAddresses(t *testing.T) {
	c := newComparer()
	rapid.Check(t, func(t *rapid.T) {
		ka, kb := genKey(t, "a"), genKey(t, "b")
		a, b := ka.encode(), kb.encode()
		want := compareAddresses(ka, kb)
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
	long := strings.Repeat("l", 17)
	for _, q := range []string{"", "\x00", "a", "a\x00", "b", "\xff", long[:15], long[:16], long} {
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
		for _, q := range []string{"", "q", strings.Repeat("\x00", 17)} {
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
