package uid_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store/storetest"
)

func TestLookup_MakesNothing(t *testing.T) {
	st := newFake()
	r := newRegistry(t, config(st))
	wantEqual(t, "Lookup", lookup(t, r, metric("up"), tagv("\x00"), tagv("é")), make([][]mapping.UID, 3))
	wantEqual(t, "cells", format(st.all()), "")
}

func TestLookup_FindsEverySpelling(t *testing.T) {
	st := newFake()
	st.put("caf\xe9", "id", "tagv", "\x00\x00\x09") // as OpenTSDB writes it
	st.put("\x00\x00\x09", "name", "tagv", "caf\xe9")
	r := newRegistry(t, config(st))
	wantEqual(t, "before Assign", lookup(t, r, tagv("café")), [][]mapping.UID{{9}})
	wantEqual(t, "Assign", assign(t, r, tagv("café")), []mapping.UID{1})
	after := lookup(t, r, tagv("café"), tagk("café"), tagv("café"))
	wantEqual(t, "after", after, [][]mapping.UID{{1, 9}, nil, {1, 9}})
	for _, id := range []mapping.UID{1, 9} {
		wantEqual(t, "Texts", texts(t, r, uid.ID{Kind: mapping.Tagv, UID: id}), []uid.Text{{Text: "café", OK: true}})
	}
	if id, _ := r.CachedUID(mapping.Tagv, "café"); id != 1 {
		t.Errorf("CachedUID = %d, want that of Assign, 1", id)
	}
}

// The counters stand in row 00, where a name of one zero byte would be.
func TestCountersAreNotTakenForNames(t *testing.T) {
	c := config(newFake())
	c.Schema.TagvWidth = 8 // as wide as a counter
	r := newRegistry(t, c)
	assign(t, r, tagv("a"))
	wantEqual(t, "Lookup", lookup(t, r, tagv("\x00")), [][]mapping.UID{nil})
	wantEqual(t, "Search", search(t, r, mapping.Tagv, ""), []uid.Entry{{Text: "a", UID: 1}})
	assign(t, r, tagv("\x00"))
	wantEqual(t, "Lookup", lookup(t, r, tagv("\x00")), [][]mapping.UID{{2}})
	wantEqual(t, "Search", search(t, r, mapping.Tagv, "\x00"), []uid.Entry{{Text: "\x00", UID: 2}})
}

func TestTexts_UnknownIDs(t *testing.T) {
	c := config(newFake())
	c.Schema.TagkWidth = 1
	r := newRegistry(t, c)
	assign(t, r, tagk("a"), metric("m"))
	// 257 would be 1 if it were cut to the width.
	ids := []uid.ID{{Kind: mapping.Tagk, UID: 0}, {Kind: mapping.Tagk, UID: 257}, {Kind: mapping.Tagk, UID: 2},
		{Kind: mapping.Tagv, UID: 1}, {Kind: mapping.Tagk, UID: 1}, {Kind: mapping.Metric, UID: 1}}
	fresh := newRegistry(t, c)
	for _, r := range []*uid.Registry{r, fresh} {
		want := []uid.Text{{}, {}, {}, {}, {Text: "a", OK: true}, {Text: "m", OK: true}}
		wantEqual(t, "Texts", texts(t, r, ids...), want)
	}
	if text, ok := fresh.CachedText(mapping.Tagk, 1); !ok || text != "a" {
		t.Errorf("CachedText = %q, %v; want a", text, ok)
	}
	if _, ok := fresh.CachedUID(mapping.Tagk, "a"); ok {
		t.Error("CachedUID knows a name from its reverse cell, which may be that of a lost id")
	}
}

func TestSearch_FindsTextsByPrefix(t *testing.T) {
	for _, mode := range []mapping.Names{mapping.NamesRaw, mapping.NamesOpenTSDB} {
		rapid.Check(t, func(rt *rapid.T) {
			c := config(newFake())
			c.Names = mode
			r := storetest.Must(uid.New(c))
			defer r.Close()
			letter := rapid.SampledFrom([]rune{'a', 'b', 'U', '_', ':', 0, 0x7f, 'é', 'ÿ', '指'})
			text := rapid.StringOfN(letter, 0, 6, -1)
			names := rapid.SliceOfDistinct(rapid.StringOfN(letter, 1, 6, -1), rapid.ID[string]).Draw(rt, "names")
			want := make(map[uid.Entry]bool)
			prefix := text.Draw(rt, "prefix")
			for _, n := range names {
				results, err := r.Assign(context.Background(), []uid.Name{tagv(n), metric("other")})
				if err != nil || results[0].Err != nil {
					rt.Fatal(results, err)
				}
				if strings.HasPrefix(n, prefix) {
					want[uid.Entry{Text: n, UID: results[0].UID}] = true
				}
			}
			var stored []string
			for e, err := range r.Search(context.Background(), mapping.Tagv, prefix) {
				if err != nil {
					rt.Fatal(err)
				}
				if !want[e] {
					rt.Errorf("Search(%q) yields %+v, not wanted or twice", prefix, e)
				}
				delete(want, e)
				stored = append(stored, mode.Encode(e.Text))
			}
			if len(want) > 0 {
				rt.Errorf("Search(%q) misses %v", prefix, want)
			}
			if !slices.IsSorted(stored) {
				rt.Errorf("Search(%q) is not ascending: %q", prefix, stored)
			}
		})
	}
}

func TestSearch_OldSpellingsAndEarlyEnd(t *testing.T) {
	st := newFake()
	st.put("\xc3\xa9\xe9", "id", "tagv", "\x00\x00\x09") // "Ã©é", though its beginning is the UTF-8 of é
	r := newRegistry(t, config(st))
	assign(t, r, tagv("Ã©x"), tagv("a"), tagv("b"))
	want := []uid.Entry{{Text: "Ã©x", UID: 1}, {Text: "Ã©é", UID: 9}}
	wantEqual(t, "Search", search(t, r, mapping.Tagv, "Ã©"), want)
	for e := range r.Search(t.Context(), mapping.Tagv, "") {
		wantEqual(t, "first", e, uid.Entry{Text: "a", UID: 2})
		break
	}
}

func search(t testing.TB, r *uid.Registry, kind mapping.Kind, prefix string) []uid.Entry {
	t.Helper()
	var found []uid.Entry
	for e, err := range r.Search(t.Context(), kind, prefix) {
		if err != nil {
			t.Fatalf("Search(%v, %q): %v", kind, prefix, err)
		}
		found = append(found, e)
	}
	return found
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	c := config(newFake())
	c.Schema.MetricWidth = 1
	c.Registerer = reg
	r := newRegistry(t, c)
	assign(t, r, numbered(metric, 3)...)
	assign(t, r, numbered(metric, 4)...)
	for name, want := range map[string]float64{
		"promtsd_uid_assigned_total":     4,
		"promtsd_uid_cache_hits_total":   3,
		"promtsd_uid_cache_misses_total": 4,
		"promtsd_uid_last_assigned":      4,
		"promtsd_uid_max":                255 + 2*(1<<24-1),
		"promtsd_uid_lost_races_total":   0,
	} {
		wantEqual(t, name, total(t, name, reg), want)
	}
}

func TestCachedFastPathsDoNotAllocate(t *testing.T) {
	r := newRegistry(t, config(newFake()))
	assign(t, r, metric("up"))
	text := fmt.Sprint("u", "p")
	if n := testing.AllocsPerRun(100, func() {
		_, _ = r.CachedUID(mapping.Metric, text)
		_, _ = r.CachedUID(mapping.Metric, "missing")
		_, _ = r.CachedText(mapping.Metric, 1)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
