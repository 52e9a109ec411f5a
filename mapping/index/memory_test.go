package index_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// memory returns a memory that others do not write beside, built, and a reader on it.
func (db *database) memory(maxSeries int) (*index.Memory, *index.Reader) {
	return db.member(maxSeries, 0)
}

func (db *database) member(maxSeries int, refresh time.Duration) (*index.Memory, *index.Reader) {
	db.t.Helper()
	m := storetest.Must(index.NewMemory(index.MemoryConfig{
		Store: db.store, Settings: db.settings, MaxSeries: maxSeries, Refresh: refresh,
	}))
	if err := m.Build(db.t.Context()); err != nil {
		db.t.Fatal(err)
	}
	return m, db.readerOn(m)
}

func (db *database) readerOn(m *index.Memory) *index.Reader {
	uids := storetest.Must(uid.New(uid.Config{
		Store: db.store, Table: db.settings.Tables.UID, Schema: db.settings.Schema, Names: db.settings.Names,
	}))
	return index.NewReader(index.Config{Store: db.store, Settings: db.settings, UIDs: uids, Memory: m})
}

// add puts a series on some days through a memory.
func (db *database) add(m *index.Memory, tsuid []byte, days ...mapping.Day) {
	db.t.Helper()
	var b store.Batch
	db.writer.PutSeries(&b, tsuid, 1)
	for _, d := range days {
		db.writer.PutDay(&b, tsuid, d, 1, nil)
	}
	if err := m.Apply(db.t.Context(), &b); err != nil {
		db.t.Fatal(err)
	}
}

// selected is what a Select of whole days has found, and by which path.
func (db *database) selected(
	r *index.Reader, first, last mapping.Day, ms ...*labels.Matcher,
) (found []string, path index.AccessPath) {
	db.t.Helper()
	result, err := r.Select(db.t.Context(), int64(first)*day, int64(last)*day+day-1, index.Limits{}, ms...)
	if err != nil {
		db.t.Fatal(err)
	}
	for _, s := range result.Series {
		found = append(found, fmt.Sprintf("%s %x %v", s.Labels, s.TSUID, s.Days))
	}
	return found, result.AccessPath
}

func TestMemory_AnswersAsTheStore(t *testing.T) {
	for schema, asked := range schemas {
		t.Run(schema, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { checkMemory(t, rt, newDatabase(t, asked)) })
		})
	}
}

// checkMemory lets processes write and forget, and compares what each finds in memory with what is found in the store.
func checkMemory(t *testing.T, rt *rapid.T, db *database) {
	const first = 20_000
	genDay := rapid.Custom(func(rt *rapid.T) mapping.Day {
		return mapping.Day(first + rapid.SampledFrom([]int{0, 1, 2, 3, 5, 6, 7, 30, 39}).Draw(rt, "day"))
	})
	genSeries := rapid.Custom(func(rt *rapid.T) []byte {
		words := []string{"a", "b", "c", "ab", "\xe9", "é"}
		var tags []string
		for range rapid.IntRange(0, 3).Draw(rt, "tags") {
			tags = append(tags, rapid.SampledFrom(words).Draw(rt, "tagk"), rapid.SampledFrom(words).Draw(rt, "tagv"))
		}
		return db.tsuid(rapid.SampledFrom(words).Draw(rt, "metric"), tags...)
	})
	for range rapid.IntRange(0, 20).Draw(rt, "before") {
		db.write(genSeries.Draw(rt, "series"), int64(genDay.Draw(rt, "day"))*day)
	}
	max := rapid.SampledFrom([]int{1, 5, 10, 1000}).Draw(rt, "max")
	memory, r := db.memory(max)
	ofStore := db.reader(true)
	rt.Repeat(map[string]func(*rapid.T){
		"add": func(rt *rapid.T) {
			db.add(memory, genSeries.Draw(rt, "series"), rapid.SliceOfN(genDay, 1, 3).Draw(rt, "days")...)
		},
		"build": func(rt *rapid.T) {
			if err := memory.Build(t.Context()); err != nil {
				rt.Fatal(err)
			}
		},
		"": func(rt *rapid.T) {
			from, to := genDay.Draw(rt, "first"), genDay.Draw(rt, "last")
			var ms []*labels.Matcher
			for range rapid.IntRange(0, 3).Draw(rt, "matchers") {
				ms = append(ms, genMatcher(rt))
			}
			want, _ := db.selected(ofStore, from, to, ms...)
			got, path := db.selected(r, from, to, ms...)
			if !slices.Equal(got, want) {
				rt.Fatalf("%v on days %d to %d by %s:\n got %q\nwant %q", ms, from, to, path, got, want)
			}
			if max == 1000 && path != index.AccessMemory && path != index.AccessNone && from <= to {
				rt.Fatalf("took the path %q, want the memory's", path)
			}
			checkLabels(t, rt, db, r, from, to, ms)
		},
	})
}

func genMatcher(rt *rapid.T) *labels.Matcher {
	name := rapid.SampledFrom([]string{"__name__", "a", "b", "c", "é", "none"}).Draw(rt, "name")
	kind := rapid.SampledFrom([]labels.MatchType{
		labels.MatchEqual, labels.MatchNotEqual, labels.MatchRegexp, labels.MatchNotRegexp,
	}).Draw(rt, "type")
	value := rapid.SampledFrom([]string{"", "a", "b", "ab", "é", "none"}).Draw(rt, "value")
	if kind == labels.MatchRegexp || kind == labels.MatchNotRegexp {
		value = rapid.SampledFrom([]string{"", ".*", ".+", "a|b", "a.*", "a.*|", "(?i)A", "[^a]*", "none"}).Draw(rt, "regexp")
	}
	return labels.MustNewMatcher(kind, name, value)
}

func TestMemory_SeesWhatOtherProcessesAdd(t *testing.T) {
	db := newDatabase(t, nil)
	const d = mapping.Day(20_000)
	one, ofOne := db.member(1000, time.Hour)
	two, ofTwo := db.member(1000, time.Hour)
	db.add(one, db.tsuid("m", "k", "1"), d, d-100)
	db.add(two, db.tsuid("m", "k", "2"), d)
	none, _ := db.selected(db.reader(true), 0, 1, eq("__name__", "m"))
	for name, c := range map[string]struct {
		r     *index.Reader
		first string
	}{"one": {ofOne, "1"}, "two": {ofTwo, "2"}} {
		if got, path := db.selected(c.r, d, d, eq("__name__", "m")); len(got) != 1 || path != index.AccessMemory ||
			!strings.Contains(got[0], c.first) {
			t.Errorf("%s before it reads the feed: got %q by %s, want its own series", name, got, path)
		}
	}
	for _, m := range []*index.Memory{one, two, one} {
		if err := m.ReadFeed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, span := range [][2]mapping.Day{{d, d}, {d - 100, d - 99}, {d - 30, d - 1}} {
		want, _ := db.selected(db.reader(true), span[0], span[1], eq("__name__", "m"))
		for name, r := range map[string]*index.Reader{"one": ofOne, "two": ofTwo} {
			got, path := db.selected(r, span[0], span[1], eq("__name__", "m"))
			if !slices.Equal(got, want) || path != index.AccessMemory {
				t.Errorf("%s on days %v: got %q by %s, want %q", name, span, got, path, want)
			}
		}
	}
	// A row that becomes visible after later ones is found, too.
	held := &holding{Store: db.store}
	slow := storetest.Must(index.NewMemory(index.MemoryConfig{
		Store: held, Settings: db.settings, MaxSeries: 1000, Refresh: time.Hour,
	}))
	held.hold = true
	db.add(slow, db.tsuid("m", "k", "late"), d)
	held.hold = false
	db.add(slow, db.tsuid("m", "k", "early"), d)
	for _, m := range []*index.Memory{one, two} {
		if err := m.ReadFeed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, _ := db.selected(ofTwo, d, d, eq("k", "early")); len(got) != 1 {
		t.Errorf("got %q, want the series that was added in time", got)
	}
	db.apply(held.batch)
	if err := two.ReadFeed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, path := db.selected(ofTwo, d, d, eq("k", "late")); len(got) != 1 || path != index.AccessMemory {
		t.Errorf("got %q by %s, want the series that was added late", got, path)
	}
	if none != nil {
		t.Errorf("got %q before any day", none)
	}
}

// holding keeps a batch back.
type holding struct {
	store.Store
	hold  bool
	batch *store.Batch
}

func (h *holding) Apply(ctx context.Context, b *store.Batch) error {
	if !h.hold {
		return h.Store.Apply(ctx, b)
	}
	h.batch = new(store.Batch)
	for i := range b.Len() {
		m := b.At(i)
		h.batch.Put(m.Table, m.Row, string(m.Family), m.Qualifier, m.Timestamp, m.Value)
	}
	return nil
}

// Rows of writers that have ended are removed also by a process that reads none. None is removed before it was seen for
// two hours, whatever the clock of its writer says.
func TestMemory_RemovesOldRowsOfTheFeed(t *testing.T) {
	for name, reads := range map[string]bool{"one that reads them": true, "one that does not": false} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t, nil)
			one, _ := db.member(1000, time.Hour)
			series := 10_000
			if !reads {
				series = 0
			}
			two, ofTwo := db.member(series, time.Hour)
			tell := func(rows int, clock int64) {
				for i := range rows {
					var b store.Batch
					db.writer.PutDay(&b, db.tsuid("m", "k", fmt.Sprint(clock, i)), 20_000, clock, nil)
					if err := one.Apply(t.Context(), &b); err != nil {
						t.Fatal(err)
					}
				}
			}
			begin := time.Now()
			tell(2500, 1)
			for _, c := range []struct {
				after time.Duration
				tell  int
				clock int64
				want  int
			}{
				{0, 0, 0, 2500}, {time.Hour, 3, begin.Add(time.Hour * 1e5).UnixMilli(), 2503}, {2*time.Hour - 1, 0, 0, 2503},
				{2 * time.Hour, 0, 0, 3}, {3*time.Hour - 1, 2, 5, 5}, {3 * time.Hour, 0, 0, 2}, {6 * time.Hour, 0, 0, 0},
				{9 * time.Hour, 0, 0, 0},
			} {
				tell(c.tell, c.clock)
				if reads {
					if err := two.ReadFeed(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if err := two.SweepFeed(t.Context(), begin.Add(c.after)); err != nil {
					t.Fatal(err)
				}
				rows := 0
				for _, err := range db.store.Scan(t.Context(), store.Scan{
					Table: "promtsd", Ranges: []store.Range{{Start: []byte("n"), Stop: []byte("o")}},
				}) {
					if rows++; err != nil {
						t.Fatal(err)
					}
				}
				if rows != c.want {
					t.Errorf("after %v: %d rows are left, want %d", c.after, rows, c.want)
				}
			}
			if !reads {
				return
			}
			// A writer that was silent for long is met again.
			db.add(one, db.tsuid("m", "k", "new"), 20_000)
			if err := two.ReadFeed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got, path := db.selected(ofTwo, 20_000, 20_000, eq("k", "new")); len(got) != 1 || path != index.AccessMemory {
				t.Errorf("got %q by %s, want the new series", got, path)
			}
		})
	}
}

func TestMemory_StaleAnswersAreNotGiven(t *testing.T) {
	db := newDatabase(t, nil)
	db.write(db.tsuid("m", "k", "v"), noon)
	_, r := db.member(1000, time.Nanosecond)
	if got, path := db.selected(r, 20_000, 20_000, eq("k", "v")); len(got) != 1 || path != index.AccessDays {
		t.Errorf("got %q by %q, want it from the store", got, path)
	}
}

func TestMemory_IsBounded(t *testing.T) {
	db := newDatabase(t, nil)
	for i := range 40 {
		db.write(db.tsuid("m", "k", fmt.Sprint(i)), 20_000*day-int64(i/10)*day) // ten series on each of four days
	}
	for _, c := range []struct {
		max  int
		days int // that are in memory
	}{{9, 0}, {10, 1}, {11, 1}, {23, 1}, {24, 2}, {40, 3}, {48, 4}, {1000, 4}} {
		registry := prometheus.NewRegistry()
		m := storetest.Must(index.NewMemory(index.MemoryConfig{
			Store: db.store, Settings: db.settings, MaxSeries: c.max, Registerer: registry,
		}))
		if err := m.Build(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := db.readerOn(m)
		for back := range 4 {
			got, path := db.selected(r, mapping.Day(20_000-back), 20_000, eq("__name__", "m"))
			if len(got) != 10*(back+1) || (path == index.AccessMemory) != (back < c.days) {
				t.Errorf("at most %d series, %d days back: got %d by %s", c.max, back, len(got), path)
			}
		}
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Errorf("metrics: %v, %v", problems, err)
		}
	}
	// What does not fit is found in the store.
	m, r := db.memory(10)
	db.add(m, db.tsuid("m", "k", "more"), 20_000)
	if got, path := db.selected(r, 20_000, 20_000, eq("__name__", "m")); len(got) != 11 || path != index.AccessDays {
		t.Errorf("with a series too many: got %d by %s", len(got), path)
	}
}

// One metric with very many series costs the others nothing: it is left out, and found in the store.
func TestMemory_LeavesOutTheLargestMetrics(t *testing.T) {
	db := newDatabase(t, nil)
	const today = mapping.Day(20_000)
	put := func(m *index.Memory, metric string, from, to int) {
		for i := from; i < to; i++ {
			if tsuid := db.tsuid(metric, "k", fmt.Sprint(metric, i)); m == nil {
				db.write(tsuid, noon)
			} else {
				db.add(m, tsuid, today)
			}
		}
	}
	var r *index.Reader
	check := func(when, metric string, series int, inMemory bool) {
		t.Helper()
		found, path := db.selected(r, today, today, eq("__name__", metric))
		if len(found) != series || (path == index.AccessMemory) != inMemory {
			t.Errorf("%s: %s has %d series by %s, want %d, and by memory %v", when, metric, len(found), path, series, inMemory)
		}
		values, path, err := r.LabelValues(t.Context(), "k", noon, noon, index.Limits{}, eq("__name__", metric))
		if err != nil || len(values) != series || (path == index.AccessMemory) != inMemory {
			t.Errorf("%s: k has %d values in %s by %s, %v", when, len(values), metric, path, err)
		}
	}
	all := func(when string, series int) {
		t.Helper()
		found, _ := db.selected(r, today, today, eq("none", ""))
		names, _, err := r.LabelNames(t.Context(), noon, noon, index.Limits{})
		if len(found) != series || err != nil || len(names) != 2 {
			t.Errorf("%s: %d series, want %d; label names %q, %v", when, len(found), series, names, err)
		}
	}
	put(nil, "small", 0, 20)
	put(nil, "middle", 0, 40)
	put(nil, "flood", 0, 500)
	m, reader := db.memory(100)
	r = reader
	check("at first", "small", 20, true)
	check("at first", "middle", 40, true)
	check("at first", "flood", 500, false)
	all("at first", 560)
	put(m, "small", 20, 30)
	check("with new series", "small", 30, true)
	put(m, "another", 0, 100) // for which there is no room
	check("when it is full", "small", 30, true)
	check("when it is full", "another", 100, false)
	all("when it is full", 670)
	put(m, "middle", 40, 41)
	check("when it is full", "middle", 41, false)
	check("when it is full", "small", 30, true)
	if err := m.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	check("in the end", "small", 30, true)
	check("in the end", "another", 100, false)
	check("in the end", "middle", 41, true)
	all("in the end", 671)
}

func TestMemory_ForgetsDays(t *testing.T) {
	db := newDatabase(t, nil)
	db.write(db.tsuid("m", "k", "v"), 20_000*day)
	for before, want := range map[mapping.Day]int{20_000: 1, 20_001: 0} {
		m, r := db.memory(10)
		m.Forget(before)
		if got, path := db.selected(r, 19_990, 20_010, eq("__name__", "m")); len(got) != want || path != index.AccessMemory {
			t.Errorf("days before %d forgotten: got %q by %s, want %d", before, got, path, want)
		}
	}
}

func TestMemory_ErrorOfTheStoreComesBack(t *testing.T) {
	db := newDatabase(t, nil)
	for i := range 3 {
		db.write(db.tsuid("m", "k", fmt.Sprint(i)), noon-int64(i)*day)
	}
	for call := 1; ; call++ {
		st := storetest.Faulty(db.store, storetest.Fault{Call: call, When: storetest.Before})
		m := storetest.Must(index.NewMemory(index.MemoryConfig{
			Store: st, Settings: db.settings, MaxSeries: 10, Refresh: time.Hour,
		}))
		err := m.Build(t.Context())
		if st.Calls(storetest.Any) < call {
			if err != nil || call < 5 {
				t.Errorf("after %d calls: %v", call-1, err)
			}
			break
		}
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("call %d failing: got %v", call, err)
		}
		got, _ := db.selected(db.readerOn(m), 19_900, 20_000, eq("__name__", "m"))
		if len(got) != 3 {
			t.Errorf("call %d failing: got %q", call, got)
		}
	}
}

// Whatever runs at the same time, a series is found from the moment its batch was applied.
func TestMemory_AddsBuildsAndSelectsAtTheSameTime(t *testing.T) {
	db := newDatabase(t, nil)
	const writers, each = 3, 200
	tsuids := make([][]byte, writers*each)
	for i := range tsuids {
		tsuids[i] = db.tsuid("m", "k", fmt.Sprint(i), "w", fmt.Sprint(i/each))
	}
	m, r := db.memory(1000)
	ctx, cancel := context.WithCancel(t.Context())
	var others, adders sync.WaitGroup
	others.Go(func() {
		for ctx.Err() == nil {
			if err := m.Build(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for w := range writers {
		adders.Go(func() {
			for i := range each {
				n := w*each + i
				db.add(m, tsuids[n], mapping.Day(20_000-i%7))
				from := mapping.Day(20_000 - i%7)
				got, path := db.selected(r, from, from, eq("k", fmt.Sprint(n)), re("w", "[0-9]"))
				if len(got) != 1 {
					t.Errorf("series %d on day %d: got %q by %s", n, from, got, path)
				}
			}
		})
	}
	adders.Wait()
	cancel()
	others.Wait()
	if err := m.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, path := db.selected(r, 19_990, 20_000, eq("__name__", "m"))
	if len(got) != writers*each || path != index.AccessMemory {
		t.Errorf("at the end: got %d by %s", len(got), path)
	}
}

func TestMemory_RunFollowsUntilItsContextEnds(t *testing.T) {
	db := newDatabase(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	const refresh = 50 * time.Millisecond
	one := storetest.Must(index.NewMemory(index.MemoryConfig{
		Store: db.store, Settings: db.settings, MaxSeries: 10, Refresh: refresh,
	}))
	two := storetest.Must(index.NewMemory(index.MemoryConfig{Store: db.store, Settings: db.settings, Refresh: refresh}))
	var running sync.WaitGroup
	running.Go(func() { one.Run(ctx) })
	running.Go(func() { two.Run(ctx) })
	db.add(two, db.tsuid("m", "k", "v"), 20_000)
	r := db.readerOn(one)
	for deadline := time.Now().Add(time.Minute); ; {
		got, path := db.selected(r, 20_000, 20_000, eq("k", "v"))
		if len(got) != 1 && path == index.AccessDays {
			t.Fatal("the series is not found in the store")
		}
		if len(got) == 1 && path == index.AccessMemory {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got %q by %s", got, path)
		}
	}
	cancel()
	running.Wait()
}
