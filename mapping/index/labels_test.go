package index_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// checkLabels compares, by all paths, names and values with the labels of the series that a Select of some days finds.
func checkLabels(
	t *testing.T, rt *rapid.T, db *database, memory *index.Reader, first, last mapping.Day, ms []*labels.Matcher,
) {
	readers := map[string]*index.Reader{"memory": memory, "store": db.reader(true), "row keys": db.reader(false)}
	if rapid.Bool().Draw(rt, "long") {
		last += 60
		delete(readers, "row keys") // which do not tell the days of so many
	}
	mint, maxt := int64(first)*day, int64(last)*day+day-1
	found, err := db.reader(true).Select(t.Context(), mint, maxt, index.Limits{}, ms...)
	if err != nil {
		rt.Fatal(err)
	}
	want := map[string]map[string]bool{"": {}, "__name__": {}, "a": {}, "é": {}, "none": {}}
	for _, s := range found.Series {
		s.Labels.Range(func(l labels.Label) {
			want[""][l.Name] = true
			if want[l.Name] != nil {
				want[l.Name][l.Value] = true
			}
		})
	}
	enough := rapid.IntRange(0, 3).Draw(rt, "enough")
	for path, r := range readers {
		for label, texts := range want {
			got, _, err := r.LabelNames(t.Context(), mint, maxt, index.Limits{Enough: enough}, ms...)
			if label != "" {
				got, _, err = r.LabelValues(t.Context(), label, mint, maxt, index.Limits{Enough: enough}, ms...)
			}
			if err != nil {
				rt.Fatal(err)
			}
			least := len(texts)
			if enough > 0 {
				least = min(least, enough)
			}
			if len(got) < least || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) < len(got) ||
				slices.ContainsFunc(got, func(text string) bool { return !texts[text] }) {
				rt.Fatalf("by %s, label %q, %v on days %d to %d, %d are enough:\n got %q\nwant %q",
					path, label, ms, first, last, enough, got, slices.Sorted(maps.Keys(texts)))
			}
		}
		some, err := r.Select(t.Context(), mint, maxt, index.Limits{Enough: enough}, ms...)
		if least := min(enough, len(found.Series)); err != nil || len(some.Series) < least {
			rt.Fatalf("by %s, %v on days %d to %d, %d are enough: got %v, %v", path, ms, first, last, enough, some.Series, err)
		}
	}
}

// What names and values take grows with them, and not with the series that have them.
func TestLabels_TakeNoMemoryForEachSeries(t *testing.T) {
	const few, many = 2_000, 20_000
	taken := func(series int) (bytes map[string]uint64) {
		db := newDatabase(t, nil)
		var b store.Batch
		tagk, host, id := db.id(mapping.Tagk, "job"), db.id(mapping.Tagk, "host"), db.id(mapping.Tagk, "id")
		metric := db.id(mapping.Metric, "m")
		for i := range series {
			tsuid := db.settings.Schema.AppendTSUID(nil, metric, []mapping.Tag{
				{Key: tagk, Value: db.id(mapping.Tagv, "v"+strconv.Itoa(i%10))},
				{Key: host, Value: db.id(mapping.Tagv, "v"+strconv.Itoa(i%50))},
				{Key: id, Value: mapping.UID(1_000_000 + i)}, // which has no name, as nobody asks for it
			})
			db.writer.PutSeries(&b, tsuid, 1)
			db.writer.PutDay(&b, tsuid, 20_000, 1, nil)
		}
		db.apply(&b)
		bytes = make(map[string]uint64)
		_, memory := db.memory(many)
		for path, r := range map[string]*index.Reader{"memory": memory, "store": db.reader(true)} {
			for name, ms := range map[string][]*labels.Matcher{"all": nil, "metric": {eq("__name__", "m")},
				"some": {ne("job", "v3")},
				"one":  {eq("job", "v3")}} {
				measure := func(what string, want int, ask func() (int, error)) {
					t.Helper()
					var before, after runtime.MemStats
					for range 2 { // the texts are known the second time
						runtime.ReadMemStats(&before)
						if n, err := ask(); err != nil || n != want {
							t.Fatalf("%s, %s, %s of %d series: got %d, %v, want %d", path, what, name, series, n, err, want)
						}
						runtime.ReadMemStats(&after)
					}
					bytes[path+", "+what+", "+name] = after.TotalAlloc - before.TotalAlloc
				}
				measure("names", 4, func() (int, error) {
					found, _, err := r.LabelNames(t.Context(), noon, noon, index.Limits{Series: 10}, ms...)
					return len(found), err
				})
				jobs, hosts := 10, 50
				switch name {
				case "some":
					jobs, hosts = 9, 45
				case "one":
					jobs, hosts = 1, 5
				}
				measure("metrics", 1, func() (int, error) {
					found, _, err := r.LabelValues(t.Context(), "__name__", noon, noon, index.Limits{Series: 10}, ms...)
					return len(found), err
				})
				measure("values of job", jobs, func() (int, error) {
					found, _, err := r.LabelValues(t.Context(), "job", noon, noon, index.Limits{Series: 10}, ms...)
					return len(found), err
				})
				measure("values of host", hosts, func() (int, error) {
					found, _, err := r.LabelValues(t.Context(), "host", noon, noon, index.Limits{Series: 10}, ms...)
					return len(found), err
				})
			}
		}
		return bytes
	}
	least, most := taken(few), taken(many)
	for what, bytes := range most {
		each := uint64(40) // less than a pointer to each label would take
		if strings.HasPrefix(what, "store") {
			each = 250 // what the test's store makes of a row
		}
		if bytes > least[what]+each*(many-few) {
			t.Errorf("%s: %d bytes of %d series and %d of %d", what, least[what], few, bytes, many)
		}
	}
}

// panicking is a store whose look-ups panic.
type panicking struct{ store.Store }

func (panicking) Get(context.Context, store.Get) iter.Seq2[store.Row, error] { panic("broken store") }

// A handler recovers from a panic, and the process goes on: no lock may be left behind, nor given back twice.
func TestLabelValues_APanicOfALookUpLeavesNoLock(t *testing.T) {
	db := newDatabase(t, nil)
	m, _ := db.memory(1000)
	for i := range 20 {
		db.add(m, db.tsuid(fmt.Sprint("m", i), "k", "v"), 20_000)
	}
	key := db.tsuid("m", "k", "new")
	broken := storetest.Must(uid.New(uid.Config{
		Store: panicking{db.store}, Table: db.settings.Tables.UID, Schema: db.settings.Schema,
	}))
	r := index.NewReader(index.Config{Store: db.store, Settings: db.settings, UIDs: broken, Memory: m})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the store was not asked")
			}
		}()
		_, _, _ = r.LabelValues(t.Context(), "__name__", noon, noon, index.Limits{Enough: 1})
	}()
	db.add(m, key, 20_000)
	if got, path := db.selected(db.readerOn(m), 20_000, 20_000, eq("k", "new")); len(got) != 1 || path != index.AccessMemory {
		t.Errorf("got %q by %s, want the series that was added after the panic", got, path)
	}
}
