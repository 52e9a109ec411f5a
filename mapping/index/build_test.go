package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
	"github.com/promtsd/promtsd/store/storetest"
)

// goldens are sets of testdata and the settings of their tables.
var goldens = map[string]map[string]string{
	"plain":      nil,
	"special":    nil,
	"annotation": nil,
	"salt":       {catalog.SaltWidth: "1", catalog.SaltBuckets: "20"},
	"uid4":       {catalog.MetricWidth: "4", catalog.TagkWidth: "4", catalog.TagvWidth: "4"},
	"uidmix": {catalog.MetricWidth: "2", catalog.TagkWidth: "1", catalog.TagvWidth: "4", catalog.SaltWidth: "1",
		catalog.SaltBuckets: "6"},
}

func loadGolden(t testing.TB, set string) (*storetest.Mem, catalog.Settings) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "opentsdb", set, "cells.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st := storetest.NewMem()
	if _, err := cellio.Load(t.Context(), st, f, nil); err != nil {
		t.Fatal(err)
	}
	asked := map[string]string{catalog.TableUID: "uid", catalog.TableMeta: "meta"}
	maps.Copy(asked, goldens[set])
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", asked)
	if err != nil {
		t.Fatal(err)
	}
	return st, settings
}

func TestBuild_IndexFindsWhatRowKeysFind(t *testing.T) {
	for set := range goldens {
		t.Run(set, func(t *testing.T) {
			st, settings := loadGolden(t, set)
			if settings.IndexComplete {
				t.Fatal("the index of a dump is said to be complete")
			}
			byRowKeys := newReader(st, settings)
			rows := 0
			if err := index.Build(t.Context(), st, settings, 1795253864620, func(r, _ int) { rows = r }); err != nil {
				t.Fatal(err)
			}
			if rows == 0 {
				t.Error("no progress was told")
			}
			settings, err := catalog.Open(t.Context(), st, "promtsd", nil)
			if err != nil || !settings.IndexComplete {
				t.Fatalf("after Build: %+v, %v, want a complete index", settings, err)
			}
			byIndex := newReader(st, settings)

			spans := map[[2]int64]bool{{0, mapping.MaxTime}: true} // whole days
			for row, err := range st.Scan(t.Context(), store.Scan{Table: settings.Tables.Data}) {
				if err != nil {
					t.Fatal(err)
				}
				if key, err := settings.Schema.ParseRowKey(row.Key); err == nil {
					first := int64(mapping.DayOf(int64(key.Base)*1000)) * day
					spans[[2]int64{first, first + day - 1}] = true
					spans[[2]int64{max(0, first-3*day), first + 3*day - 1}] = true
				}
			}
			all, err := byRowKeys.Select(t.Context(), 0, mapping.MaxTime, index.Limits{})
			if err != nil || len(all.Series) == 0 {
				t.Fatalf("select all by row keys: %d series, %v", len(all.Series), err)
			}
			selectors := map[string][]*labels.Matcher{"": nil}
			for _, s := range all.Series {
				s.Labels.Range(func(l labels.Label) {
					for _, m := range []*labels.Matcher{eq(l.Name, l.Value), ne(l.Name, l.Value), re(l.Name, ".+")} {
						selectors[m.String()] = []*labels.Matcher{m}
						selectors[m.String()+" of a metric"] = []*labels.Matcher{m, eq("__name__", s.Labels.Get("__name__"))}
					}
				})
			}
			found := 0
			for span := range spans {
				for text, matchers := range selectors {
					want, err := byRowKeys.Select(t.Context(), span[0], span[1], index.Limits{}, matchers...)
					if err != nil {
						t.Fatal(err)
					}
					got, err := byIndex.Select(t.Context(), span[0], span[1], index.Limits{}, matchers...)
					if err != nil {
						t.Fatal(err)
					}
					found += len(want.Series)
					for i := range got.Series {
						if i < len(want.Series) && want.Series[i].Days == nil { // which row keys do not tell of a long range
							got.Series[i].Days = nil
						}
					}
					if got, want := fmt.Sprint(got.Series), fmt.Sprint(want.Series); got != want {
						t.Errorf("select %s from %d to %d:\n by index    %s\n by row keys %s", text, span[0], span[1], got, want)
					}
				}
			}
			if found == 0 {
				t.Error("nothing was found at all")
			}
		})
	}
}

// dump is the index of a store: the cells of the meta table and of promtsd's own. Times of the settings are left out.
func dump(t testing.TB, st store.Store, settings catalog.Settings) string {
	t.Helper()
	var out bytes.Buffer
	if err := cellio.Dump(t.Context(), st, []string{settings.Tables.Meta, settings.Tables.System}, &out, nil); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(out.Bytes(), []byte("\n"))
	settingsRow := fmt.Appendf(nil, "%x", "settings")
	lines = slices.DeleteFunc(lines, func(line []byte) bool { return bytes.Contains(line, settingsRow) })
	return string(bytes.Join(lines, []byte("\n")))
}

func TestBuild_MayBeCutShortAnywhereAndRepeated(t *testing.T) {
	const now = 1795253864620
	whole, settings := loadGolden(t, "plain")
	for range 2 { // it may be repeated as well
		if err := index.Build(t.Context(), whole, settings, now, nil); err != nil {
			t.Fatal(err)
		}
	}
	want := dump(t, whole, settings)
	for _, when := range []storetest.When{storetest.Before, storetest.Midway, storetest.After} {
		for call := 1; ; call++ {
			st, settings := loadGolden(t, "plain")
			faulty := storetest.Faulty(st, storetest.Fault{Call: call, When: when, Rows: 5})
			err := index.Build(t.Context(), faulty, settings, now, nil)
			if faulty.Calls(storetest.Any) < call {
				if err != nil || call < 5 {
					t.Fatalf("Build ended after %d calls with %v", call-1, err)
				}
				break
			}
			if !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("Build with call %d failing: got %v, want ErrUnavailable", call, err)
			}
			s, err := catalog.Open(t.Context(), st, "promtsd", nil)
			recorded := call == 4 && when != storetest.Before // the last call, which had its effect
			if err != nil || s.IndexComplete != recorded {
				t.Errorf("after call %d had failed: %+v, %v", call, s, err)
			}
			if err := index.Build(t.Context(), st, settings, now, nil); err != nil {
				t.Fatal(err)
			}
			if got := dump(t, st, settings); got != want {
				t.Errorf("Build again after call %d had failed:\n got %s\nwant %s", call, got, want)
			}
		}
	}
}

func TestBuild_WritesEachSeriesDayOnceAndPassesOverForeignKeys(t *testing.T) {
	for schema, asked := range schemas {
		db := newDatabase(t, asked)
		want := newDatabase(t, asked)
		// More than one batch, several hours a day.
		for i := range 1500 {
			tsuid := db.tsuid(fmt.Sprintf("m%d", i%3), "k", fmt.Sprint(i/100), "l", fmt.Sprint(i%100))
			times := []int64{0, 1, noon, noon + 3*mapping.HourMs, noon + day}
			var b store.Batch
			for _, at := range times {
				row := db.settings.Schema.AppendRowKey(nil, tsuid, mapping.BaseTime(at))
				b.Put("tsdb", row, "t", []byte{0, 0}, 1, []byte{1})
			}
			db.apply(&b)
			want.write(tsuid, times...)
		}
		var b store.Batch
		none := make([]byte, db.settings.Schema.MetricWidth) // the metric of global annotations
		global := db.settings.Schema.AppendRowKey(nil, none, mapping.BaseTime(noon))
		b.Put("tsdb", global, "t", []byte{1, 0, 0}, 1, []byte("{}"))
		b.Put("tsdb", []byte("a key of nobody"), "t", []byte{0, 0}, 1, []byte{1})
		db.apply(&b)
		rows, seriesDays := 0, 0
		err := index.Build(t.Context(), db.store, db.settings, 1, func(r, d int) { rows, seriesDays = r, d })
		if err != nil || rows != 4*1500+2 || seriesDays != 3*1500 {
			t.Errorf("%s: got %d rows, %d series-days, %v, want %d, %d", schema, rows, seriesDays, err, 4*1500+2, 3*1500)
		}
		if got, want := dump(t, db.store, db.settings), dump(t, want.store, want.settings); got != want {
			t.Errorf("%s: the index differs from the one that was written with the samples", schema)
		}
	}
}
