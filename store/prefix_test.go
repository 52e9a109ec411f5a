package store_test

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/store"
)

func TestPrefixEnd_ComesAfterAllKeysWithThePrefix(t *testing.T) {
	for _, c := range []struct{ prefix, want string }{
		{"\x00", "\x01"}, {"a\xff", "b"}, {"a\xfe\xff\xff", "a\xff"}, {"\xff\xff", ""}, {"", ""}, {"a\x00", "a\x01"},
	} {
		if got := store.PrefixEnd([]byte(c.prefix)); string(got) != c.want {
			t.Errorf("PrefixEnd(%x) = %x, want %x", c.prefix, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 0xfe, 0xff}), 0, 5)
		prefix, key := b.Draw(t, "prefix"), b.Draw(t, "key")
		stop := store.PrefixEnd(prefix)
		in := bytes.Compare(prefix, key) <= 0 && (stop == nil || bytes.Compare(key, stop) < 0)
		if want := bytes.HasPrefix(key, prefix); in != want {
			t.Fatalf("key %x between %x and %x: %v, want %v", key, prefix, stop, in, want)
		}
	})
}
