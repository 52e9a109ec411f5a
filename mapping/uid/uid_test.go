package uid_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// config is the plainest one over a store.
func config(st store.Store) uid.Config {
	return uid.Config{Store: st, Table: uidTable, Schema: mapping.DefaultSchema()}
}

func newRegistry(t testing.TB, c uid.Config) *uid.Registry {
	t.Helper()
	r := storetest.Must(uid.New(c))
	t.Cleanup(r.Close)
	return r
}

func metric(text string) uid.Name { return uid.Name{Kind: mapping.Metric, Text: text} }
func tagk(text string) uid.Name   { return uid.Name{Kind: mapping.Tagk, Text: text} }
func tagv(text string) uid.Name   { return uid.Name{Kind: mapping.Tagv, Text: text} }

// assign wants every name to get a UID.
func assign(t testing.TB, r *uid.Registry, names ...uid.Name) []mapping.UID {
	t.Helper()
	results, err := r.Assign(t.Context(), names)
	if err != nil {
		t.Fatalf("Assign(%v): %v", names, err)
	}
	uids := make([]mapping.UID, len(names))
	for i, res := range results {
		if res.Err != nil || res.UID == 0 {
			t.Fatalf("Assign(%v) = %d, %v; want a UID", names[i], res.UID, res.Err)
		}
		uids[i] = res.UID
	}
	return uids
}

func lookup(t testing.TB, r *uid.Registry, names ...uid.Name) [][]mapping.UID {
	t.Helper()
	uids, err := r.Lookup(t.Context(), names)
	if err != nil {
		t.Fatalf("Lookup(%v): %v", names, err)
	}
	return uids
}

func texts(t testing.TB, r *uid.Registry, ids ...uid.ID) []uid.Text {
	t.Helper()
	got, err := r.Texts(t.Context(), ids)
	if err != nil {
		t.Fatalf("Texts(%v): %v", ids, err)
	}
	return got
}

func wantEqual[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if g, w := fmt.Sprintf("%v", got), fmt.Sprintf("%v", want); g != w {
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestAssign_WritesTheCellsOfOpenTSDB(t *testing.T) {
	st := newFake()
	r := newRegistry(t, config(st))
	uids := assign(t, r, metric("up"), tagk("job"), tagv("node"), tagk("up"), metric("up"), metric("http.requests"))
	wantEqual(t, "UIDs", uids, []mapping.UID{1, 1, 1, 2, 1, 2})
	wantEqual(t, "cells", format(st.all()), strings.Join([]string{
		`"\x00" id:metrics = "\x00\x00\x00\x00\x00\x00\x00\x02"`,
		`"\x00" id:tagk = "\x00\x00\x00\x00\x00\x00\x00\x02"`,
		`"\x00" id:tagv = "\x00\x00\x00\x00\x00\x00\x00\x01"`,
		`"\x00\x00\x01" name:metrics = "up"`,
		`"\x00\x00\x01" name:tagk = "job"`,
		`"\x00\x00\x01" name:tagv = "node"`,
		`"\x00\x00\x02" name:metrics = "http.requests"`,
		`"\x00\x00\x02" name:tagk = "up"`,
		`"http.requests" id:metrics = "\x00\x00\x02"`,
		`"job" id:tagk = "\x00\x00\x01"`,
		`"node" id:tagv = "\x00\x00\x01"`,
		`"up" id:metrics = "\x00\x00\x01"`,
		`"up" id:tagk = "\x00\x00\x02"`,
	}, "\n"))
}

func TestAssign_KnownNamesCostNoStoreCallTwice(t *testing.T) {
	st := newFake()
	assign(t, newRegistry(t, config(st)), metric("up"), tagv("a"))

	calls := &recorder{}
	r := newRegistry(t, config(&tapped{Store: st, before: calls.note}))
	want := []mapping.UID{1, 1}
	wantEqual(t, "UIDs from the table", assign(t, r, metric("up"), tagv("a")), want)
	wantEqual(t, "calls", calls.list(), []call{{"get", "id"}})
	wantEqual(t, "UIDs from the cache", assign(t, r, metric("up"), tagv("a")), want)
	wantEqual(t, "calls", calls.list(), []call{{"get", "id"}})
}

func TestAssign_ManyNewNamesCostFewStoreCalls(t *testing.T) {
	calls := &recorder{}
	r := newRegistry(t, config(&tapped{Store: newFake(), before: calls.note}))
	assign(t, r, numbered(tagv, 500)...)
	wantEqual(t, "calls", calls.list(), []call{{"get", "id"}, {"increment", "id"}, {"check", "name"}, {"check", "id"}})
}

func TestAssign_AnyTextComesBack(t *testing.T) {
	long := strings.Repeat("x", store.MaxRow)
	names := []string{
		"\x00", "\x00\x00", "\x00ÿ", "\x01", "é", "Ã©", "ÿ", "指标", "\U0001f600",
		"a b", "U__x", "go:gc", "__name__", "+Inf", long,
		"\x00\x00\x01", // the bytes of a UID, and so the row of a reverse cell
		mapping.NoMetric, mapping.NoTagk,
	}
	for _, mode := range []mapping.Names{mapping.NamesRaw, mapping.NamesOpenTSDB} {
		t.Run(mode.String(), func(t *testing.T) {
			c := config(newFake())
			c.Names = mode
			writer, reader := newRegistry(t, c), newRegistry(t, c)
			var ask []uid.Name
			for _, text := range names {
				ask = append(ask, metric(text), tagv(text))
			}
			uids := assign(t, writer, ask...)
			for i, found := range lookup(t, reader, ask...) {
				wantEqual(t, fmt.Sprintf("Lookup(%.20q)", ask[i].Text), found, []mapping.UID{uids[i]})
				id := uid.ID{Kind: ask[i].Kind, UID: uids[i]}
				want := uid.Text{Text: ask[i].Text, OK: true}
				wantEqual(t, fmt.Sprintf("Texts(%v)", id), texts(t, reader, id)[0], want)
			}
			wantEqual(t, "UIDs of a second process", assign(t, newRegistry(t, c), ask...), uids)
		})
	}
}

func TestAssign_RefusesWhatCannotBeStored(t *testing.T) {
	st := newFake()
	r := newRegistry(t, config(st))
	bad := []string{"", strings.Repeat("x", store.MaxRow+1), "\xff", "\x00\xff", "a\xc3", strings.Repeat("x", 30_000) +
		"\xff"}
	names := []uid.Name{metric("good")}
	for _, text := range bad {
		names = append(names, tagv(text))
	}
	results, err := r.Assign(t.Context(), names)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].UID != 1 || results[0].Err != nil {
		t.Errorf("Assign(%v) = %+v, want UID 1", names[0], results[0])
	}
	for i, res := range results[1:] {
		if !errors.Is(res.Err, mapping.ErrInvalid) || res.UID != 0 || len(res.Err.Error()) > 500 {
			t.Errorf("Assign(%.20q) = %d, %v; want a short ErrInvalid", bad[i], res.UID, res.Err)
		}
	}
	wantEqual(t, "Lookup of them", lookup(t, r, names[1:]...), make([][]mapping.UID, len(bad)))
	wantEqual(t, "tagv counter", st.counter("tagv"), 0)
}

// Names of a request point into its body, which is used again.
func TestNamesAreCopied(t *testing.T) {
	r := newRegistry(t, config(newFake()))
	body := []byte("up")
	name := metric(unsafe.String(&body[0], len(body)))
	assign(t, r, name)
	copy(body, "xx")
	if _, ok := r.CachedUID(mapping.Metric, "up"); !ok {
		t.Error("name is not cached after its memory was used again")
	}
	if text, _ := r.CachedText(mapping.Metric, 1); text != "up" {
		t.Errorf("CachedText = %q, want up", text)
	}
}

func TestAssign_ExhaustedWidth(t *testing.T) {
	st := newFake()
	c := config(st)
	c.Schema.TagkWidth = 1
	r := newRegistry(t, c)
	assign(t, r, numbered(tagk, 250)...)

	// Five of the block of ten can be used.
	results, err := r.Assign(t.Context(), append(numbered(tagk, 260)[250:], metric("other")))
	if err != nil {
		t.Fatal(err)
	}
	for i, res := range results[:10] {
		switch {
		case i < 5 && (res.Err != nil || res.UID != mapping.UID(251+i)):
			t.Errorf("name %d: got %d, %v; want UID %d", i, res.UID, res.Err, 251+i)
		case i >= 5 && !errors.Is(res.Err, uid.ErrExhausted):
			t.Errorf("name %d: got %d, %v; want ErrExhausted", i, res.UID, res.Err)
		}
	}
	if msg := results[9].Err.Error(); !strings.Contains(msg, "tagk") || !strings.Contains(msg, "1 byte") ||
		!strings.Contains(msg, "name259") {
		t.Errorf("error %q does not name kind, width and name", msg)
	}
	if results[10].Err != nil {
		t.Errorf("metric beside exhausted tagk: %v", results[10].Err)
	}

	for _, r := range []*uid.Registry{r, newRegistry(t, c)} { // the second learns it from the counter
		results, err := r.Assign(t.Context(), []uid.Name{tagk("more"), tagk("name3")})
		if err != nil || !errors.Is(results[0].Err, uid.ErrExhausted) || results[1].UID != 4 {
			t.Errorf("Assign after exhaustion = %v, %v; want ErrExhausted and UID 4", results, err)
		}
	}
	wantEqual(t, "counter", st.counter("tagk"), 260)
}

func TestAssign_IDsInUseArePassedOver(t *testing.T) {
	st := newFake()
	st.put("\x00\x00\x01", "name", "metrics", "random.one")
	st.put("random.one", "id", "metrics", "\x00\x00\x01")
	st.put("\x00\x00\x03", "name", "metrics", "leaked")
	r := newRegistry(t, config(st))
	uids := assign(t, r, metric("a"), metric("b"), metric("c"), metric("random.one"))
	wantEqual(t, "UIDs", uids, []mapping.UID{4, 2, 5, 1})
	checkTable(t, st)
	wantEqual(t, "leaked reverse cell", st.get("\x00\x00\x03", "name", "metrics"), "leaked")
}

func TestAssign_CounterFarBehindIsOvertakenByCallingAgain(t *testing.T) {
	st := newFake()
	for i := range 35 {
		st.put(string([]byte{0, 0, byte(i + 1)}), "name", "tagv", fmt.Sprintf("old%d", i))
	}
	r := newRegistry(t, config(st))
	for range 3 {
		if _, err := r.Assign(t.Context(), []uid.Name{tagv("new")}); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Assign over ids in use: %v, want ErrUnavailable", err)
		}
	}
	wantEqual(t, "UID", assign(t, r, tagv("new")), []mapping.UID{36})
}

func TestWrongWidthIsReported(t *testing.T) {
	st := newFake()
	st.put("up", "id", "metrics", "\x00\x00\x00\x07")
	st.put("zero", "id", "metrics", "\x00\x00\x00")
	r := newRegistry(t, config(st))
	results, err := r.Assign(t.Context(), []uid.Name{metric("up"), metric("zero"), metric("fine")})
	if err != nil {
		t.Fatal(err)
	}
	if err := results[0].Err; !errors.Is(err, mapping.ErrCorrupt) || !strings.Contains(err.Error(), "width") {
		t.Errorf("Assign over a UID of 4 bytes: %v, want ErrCorrupt naming the width", err)
	}
	if err := results[1].Err; !errors.Is(err, mapping.ErrCorrupt) {
		t.Errorf("Assign over UID 0: %v, want ErrCorrupt", err)
	}
	if results[2].Err != nil {
		t.Errorf("name beside corrupt ones: %v", results[2].Err)
	}
	if _, err := r.Lookup(t.Context(), []uid.Name{metric("up")}); !errors.Is(err, mapping.ErrCorrupt) {
		t.Errorf("Lookup: %v, want ErrCorrupt", err)
	}
	for _, err := range r.Search(t.Context(), mapping.Metric, "up") {
		if !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("Search: %v, want ErrCorrupt", err)
		}
	}
	st.put("\x00", "id", "tagk", "\xff\xff\xff\xff\xff\xff\xff\x00")
	results, err = r.Assign(t.Context(), []uid.Name{tagk("job"), tagv("job")})
	if err != nil || !errors.Is(results[0].Err, mapping.ErrCorrupt) || results[1].Err != nil {
		t.Errorf("Assign from a negative counter: %v, %v, want ErrCorrupt for one name", results, err)
	}
}

// numbered is n names of a kind.
func numbered(kind func(string) uid.Name, n int) []uid.Name {
	names := make([]uid.Name, n)
	for i := range names {
		names[i] = kind(fmt.Sprintf("name%d", i))
	}
	return names
}

// checkTable wants what always holds: the UID of every forward cell leads back to the name, no two names of a kind
// share one, and no UID came from beyond the counter.
func checkTable(t testing.TB, st *fake) {
	t.Helper()
	cells := st.all()
	holder := make(map[address]string)
	for a, value := range cells {
		if a.family != "id" || a.row == "\x00" {
			continue
		}
		reverse := address{value, "name", a.qualifier}
		if other, ok := holder[reverse]; ok {
			t.Errorf("%s UID %q belongs to both %q and %q", a.qualifier, value, other, a.row)
		}
		holder[reverse] = a.row
		if cells[reverse] != a.row {
			t.Errorf("%s name %q has UID %q, whose name is %q", a.qualifier, a.row, value, cells[reverse])
		}
	}
}
