package seriescache

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping/request"
)

// Series come in any order, some with the label bytes of another and more; some are not known, some are told by
// references.
func TestFinder_FindsWhatTheCacheHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all [][]byte
		for _, values := range []string{"a", "ab", "abc", "b", "bc", ""} {
			var labels []byte
			for _, value := range values {
				labels = request.AppendLabel(labels, "name", string(value))
			}
			all = append(all, labels)
		}
		all = append(all, appendRefsKey(nil, 0, []uint32{1, 2}, []uint32{0, 1}))
		c := New(1<<10, newTable())
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(all)-1), 1, len(all), rapid.ID).Draw(t, "known") {
			c.Add(all[i], newSeries(c.table, string(all[i])))
		}
		f := c.NewFinder()
		for range 3 {
			f.Reset()
			order := rapid.SliceOf(rapid.SampledFrom(all)).Draw(t, "order")
			for i, labels := range order {
				body := append(bytes.Clone(labels), 0x12, 0)
				n := f.Expect(body)
				if n > 0 && (i == 0 || body[0] == 0 || c.Get(body[:n]) == nil) {
					t.Fatalf("%x is expected of %x, which is not known", body[:n], body)
				}
				f.Next(labels, n > 0 && n == len(labels))
			}
			for i, labels := range order {
				if got, want := f.entries[i], c.find(c.hash(labels), labels); got != want {
					t.Fatalf("series %d, %x: got %v, want %v", i, labels, got, want)
				}
			}
		}
	})
}

func TestFinder_ExpectsTheOrderOfTheRequestBefore(t *testing.T) {
	c := New(1<<10, newTable())
	labels := [][]byte{request.AppendLabel(nil, "a", "1"), request.AppendLabel(nil, "a", "2"),
		request.AppendLabel(nil, "a", "3")}
	for _, l := range labels {
		c.Add(l, newSeries(c.table, string(l)))
	}
	f := c.NewFinder()
	for n, want := range []int{0, 2} {
		f.Reset()
		expected := 0
		for _, l := range labels {
			n := f.Expect(l)
			if n > 0 {
				expected++
			}
			f.Next(l, n > 0)
		}
		if expected != want {
			t.Errorf("request %d: %d series were expected, want %d", n, expected, want)
		}
	}
}
