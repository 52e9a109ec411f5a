package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

const own = "promtsd"

// settingsCells are the cells of the settings row, by setting.
func settingsCells(t testing.TB, st store.Store) map[string]string {
	t.Helper()
	cells := map[string]string{}
	for row, err := range st.Get(t.Context(), store.Get{Table: own, Rows: [][]byte{[]byte("settings")}}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range row.Cells {
			if c.Family != catalog.FamilySystem {
				t.Errorf("a setting stands in family %q", c.Family)
			}
			cells[string(c.Qualifier)] = string(c.Value)
		}
	}
	return cells
}

// loadGolden loads what a real OpenTSDB stored.
func loadGolden(t testing.TB, st store.Store, set string) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "opentsdb", set, "cells.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := cellio.Load(t.Context(), st, f, nil); err != nil {
		t.Fatal(err)
	}
}

// goldenTables are the settings that name the tables of the golden sets.
func goldenTables(more map[string]string) map[string]string {
	asked := map[string]string{catalog.TableUID: "uid", catalog.TableMeta: "meta"}
	maps.Copy(asked, more)
	return asked
}

func put(t testing.TB, st store.Store, table, row, family, qualifier, value string) {
	t.Helper()
	var b store.Batch
	b.Put(table, []byte(row), family, []byte(qualifier), 1, []byte(value))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func TestInit_MakesTablesAndRecordsTheSettings(t *testing.T) {
	db, err := pebble.Open(pebble.Config{Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for name, st := range map[string]store.Store{"mem": storetest.NewMem(), "pebble": db} {
		t.Run(name, func(t *testing.T) {
			if _, err := catalog.Open(t.Context(), st, own, nil); !errors.Is(err, catalog.ErrNotInitialised) {
				t.Errorf("Open before Init: got %v, want ErrNotInitialised", err)
			}
			asked := map[string]string{catalog.SaltWidth: "1", catalog.TagvWidth: "4", catalog.NamesMode: "opentsdb"}
			s, created, err := catalog.Init(t.Context(), st, own, asked)
			if err != nil {
				t.Fatal(err)
			}
			want := catalog.Default()
			want.Schema.SaltWidth, want.Schema.TagvWidth, want.Names = 1, 4, mapping.NamesOpenTSDB
			if s != want {
				t.Errorf("Init: got  %+v\nwant %+v", s, want)
			}
			if want := []string{"tsdb", "tsdb-uid", "tsdb-meta", "promtsd", "promtsd-journal",
				"promtsd-exemplars"}; !slices.Equal(created, want) {
				t.Errorf("created %q, want %q", created, want)
			}
			tables, err := st.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, table := range tables {
				got = append(got, fmt.Sprint(table.Name, table.Families))
			}
			wantTables := []string{"promtsd[p]", "promtsd-exemplars[p]", "promtsd-journal[p]", "tsdb[t]", "tsdb-meta[name]",
				"tsdb-uid[id name]"}
			if !slices.Equal(got, wantTables) {
				t.Errorf("tables are %q, want %q", got, wantTables)
			}
			wantCells := map[string]string{
				"salt.width": "1", "salt.buckets": "20", "uid.width.metric": "3", "uid.width.tagk": "3", "uid.width.tagv": "4",
				"mapping.names": "opentsdb", "table.data": "tsdb", "table.uid": "tsdb-uid", "table.meta": "tsdb-meta",
				"index": "complete",
			}
			if got := settingsCells(t, st); !maps.Equal(got, wantCells) {
				t.Errorf("recorded %v, want %v", got, wantCells)
			}
			text := map[string]string{}
			for _, setting := range s.Text() {
				text[setting[0]] = setting[1]
			}
			if !maps.Equal(text, wantCells) {
				t.Errorf("Text() = %v, want what is recorded, %v", text, wantCells)
			}

			again, created, err := catalog.Init(t.Context(), st, own, nil)
			if err != nil || again != s || len(created) > 0 {
				t.Errorf("a second Init: got %+v, %q, %v, want %+v, and nothing made", again, created, err, s)
			}
			if opened, err := catalog.Open(t.Context(), st, own, asked); err != nil || opened != s {
				t.Errorf("Open with the same settings: got %+v, %v, want %+v", opened, err, s)
			}
		})
	}
}

func TestOpen_MismatchNamesTheFlagAndWhatIsRecorded(t *testing.T) {
	st := storetest.NewMem()
	recorded := map[string]string{
		catalog.SaltWidth: "2", catalog.SaltBuckets: "300", catalog.MetricWidth: "4", catalog.TagkWidth: "2",
		catalog.TagvWidth: "5", catalog.NamesMode: "opentsdb",
		catalog.TableData: "d", catalog.TableUID: "u", catalog.TableMeta: "m",
	}
	want, _, err := catalog.Init(t.Context(), st, own, recorded)
	if err != nil {
		t.Fatal(err)
	}
	others := map[string]string{
		// A salt of 1 byte cannot hold the recorded number of buckets, and "u" is another table: still a mismatch.
		catalog.SaltWidth: "1", catalog.SaltBuckets: "20", catalog.MetricWidth: "3", catalog.TagkWidth: "3",
		catalog.TagvWidth: "3", catalog.NamesMode: "raw",
		catalog.TableData: "u", catalog.TableUID: "x", catalog.TableMeta: "y",
	}
	for name, text := range recorded {
		for verb, call := range map[string]func(map[string]string) (catalog.Settings, error){
			"Open": func(asked map[string]string) (catalog.Settings, error) {
				return catalog.Open(t.Context(), st, own, asked)
			},
			"Init": func(asked map[string]string) (catalog.Settings, error) {
				s, _, err := catalog.Init(t.Context(), st, own, asked)
				return s, err
			},
		} {
			if got, err := call(map[string]string{name: text}); err != nil || got != want {
				t.Errorf("%s with the recorded %s=%s: got %+v, %v", verb, name, text, got, err)
			}
			_, err := call(map[string]string{name: others[name]})
			if !errors.Is(err, catalog.ErrMismatch) {
				t.Errorf("%s with %s=%s: got %v, want ErrMismatch", verb, name, others[name], err)
				continue
			}
			for _, part := range []string{"--" + name + "=" + others[name], "made with " + text, "set it to " + text} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s with %s=%s: %q does not say %q", verb, name, others[name], err, part)
				}
			}
		}
	}
	if _, err := catalog.Open(t.Context(), st, own, map[string]string{catalog.MetricWidth: "04"}); err != nil {
		t.Errorf("Open with the recorded number in another spelling: got %v", err)
	}
}

func TestInit_RefusesSettingsThatCannotBe(t *testing.T) {
	for _, asked := range []map[string]string{
		{catalog.MetricWidth: "0"},
		{catalog.MetricWidth: "9"},
		{catalog.TagkWidth: "three"},
		{catalog.SaltWidth: "1", catalog.SaltBuckets: "257"},
		{catalog.NamesMode: "base64"},
		{catalog.TableData: ""},
		{catalog.TableUID: "tsdb"},
		{catalog.TableMeta: own},
		{"salt": "1"},
		{"index": "complete"},
	} {
		st := storetest.NewMem()
		if _, _, err := catalog.Init(t.Context(), st, own, asked); !errors.Is(err, mapping.ErrInvalid) {
			t.Errorf("Init with %v: got %v, want ErrInvalid", asked, err)
		}
		if tables, err := st.Tables(t.Context()); err != nil || len(tables) > 0 {
			t.Errorf("Init with %v left tables %v, %v", asked, tables, err)
		}
	}
}

func TestInit_AdoptsTablesOfOpenTSDB(t *testing.T) {
	st := storetest.NewMem()
	loadGolden(t, st, "plain")
	s, created, err := catalog.Init(t.Context(), st, own, goldenTables(nil))
	if err != nil {
		t.Fatal(err)
	}
	// The set holds no cell of the meta table, so that the dump does not know it.
	if want := []string{"meta", own, own + "-journal", own + "-exemplars"}; !slices.Equal(created, want) {
		t.Errorf("created %q, want %q", created, want)
	}
	if s.IndexComplete {
		t.Errorf("IndexComplete of a data table that others filled")
	}
	if err := catalog.SetIndexComplete(t.Context(), st, own, true); err != nil {
		t.Fatal(err)
	}
	if s, err := catalog.Open(t.Context(), st, own, nil); err != nil || !s.IndexComplete {
		t.Errorf("Open after SetIndexComplete: got %+v, %v", s, err)
	}
	if err := catalog.SetIndexComplete(t.Context(), st, own, false); err != nil {
		t.Fatal(err)
	}
	if s, err := catalog.Open(t.Context(), st, own, nil); err != nil || s.IndexComplete {
		t.Errorf("Open after it was taken back: got %+v, %v", s, err)
	}
}

// The state is recorded first by a check, which the store stamps. What is said later counts, whichever clock is ahead.
func TestSetIndexComplete_CountsWhateverTheClocks(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, 20 * time.Millisecond, time.Hour} {
		st := storetest.NewMem()
		st.Clock = func() time.Time { return time.Now().Add(ahead) }
		if _, _, err := catalog.Init(t.Context(), st, own, nil); err != nil {
			t.Fatal(err)
		}
		for _, want := range []bool{false, true, true, false} {
			if err := catalog.SetIndexComplete(t.Context(), st, own, want); err != nil {
				t.Fatal(err)
			}
			if s, err := catalog.Open(t.Context(), st, own, nil); err != nil || s.IndexComplete != want {
				t.Errorf("clock of the store %v ahead: got %v, %v, want %v", ahead, s.IndexComplete, err, want)
			}
		}
	}
}

func TestInit_ChecksTheWidthsOfAnAdoptedUIDTable(t *testing.T) {
	salt := map[string]string{catalog.SaltWidth: "1", catalog.SaltBuckets: "6"}
	for _, c := range []struct {
		set   string
		asked map[string]string
		flags []string // one after the other, as the texts say
	}{
		{"uid4", nil, []string{"--uid.width.metric=4", "--uid.width.tagk=4", "--uid.width.tagv=4"}},
		{"uidmix", salt, []string{"--uid.width.metric=2", "--uid.width.tagk=1", "--uid.width.tagv=4"}},
	} {
		t.Run(c.set, func(t *testing.T) {
			st := storetest.NewMem()
			loadGolden(t, st, c.set)
			asked := goldenTables(c.asked)
			for _, flag := range c.flags {
				_, _, err := catalog.Init(t.Context(), st, own, asked)
				if !errors.Is(err, catalog.ErrMismatch) || !strings.Contains(fmt.Sprint(err), "set "+flag) {
					t.Fatalf("Init with %v: got %v, want a mismatch that says to set %s", asked, err, flag)
				}
				name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
				asked[name] = value
			}
			if _, _, err := catalog.Init(t.Context(), st, own, asked); err != nil {
				t.Errorf("Init with %v: %v", asked, err)
			}
		})
	}
}

func TestInit_RefusesATableOfAnotherKind(t *testing.T) {
	st := storetest.NewMem()
	if err := st.CreateTable(t.Context(), store.Table{Name: "tsdb-uid", Families: []string{"id"}}); err != nil {
		t.Fatal(err)
	}
	_, _, err := catalog.Init(t.Context(), st, own, nil)
	const want = `table "tsdb-uid" exists and has no family "name"`
	if !errors.Is(err, mapping.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

func TestInit_CompletesAHalfWrittenRecordAndKeepsWhatIsThere(t *testing.T) {
	whole := storetest.NewMem()
	asked := map[string]string{catalog.SaltWidth: "1", catalog.TableData: "points", catalog.TagkWidth: "2"}
	want, _, err := catalog.Init(t.Context(), whole, own, asked)
	if err != nil {
		t.Fatal(err)
	}
	// Of the record each single cell is lost once, then each single one is left.
	cells := settingsCells(t, whole)
	for lost := range cells {
		for _, keep := range []bool{false, true} {
			st := storetest.NewMem()
			if err := st.CreateTable(t.Context(), store.Table{Name: own, Families: []string{"p"}}); err != nil {
				t.Fatal(err)
			}
			kept := map[string]string{}
			for name, text := range cells {
				if (name == lost) == keep {
					kept[name] = text
					put(t, st, own, "settings", "p", name, text)
				}
			}
			if _, err := catalog.Open(t.Context(), st, own, nil); !errors.Is(err, catalog.ErrNotInitialised) {
				t.Errorf("Open of a record with %v: got %v, want ErrNotInitialised", kept, err)
			}
			other := map[string]string{catalog.SaltWidth: "2"}
			_, _, err := catalog.Init(t.Context(), st, own, other)
			_, recorded := kept[catalog.SaltWidth]
			if recorded != errors.Is(err, catalog.ErrMismatch) || !recorded && err != nil {
				t.Errorf("Init with %v of a record with %v: got %v", other, kept, err)
			}
			s, _, err := catalog.Init(t.Context(), st, own, nil)
			if err != nil {
				t.Errorf("Init of a record with %v: %v", kept, err)
				continue
			}
			for _, setting := range s.Text() {
				if text, ok := kept[setting[0]]; ok && text != setting[1] {
					t.Errorf("Init of a record with %v: %s became %s", kept, setting[0], setting[1])
				}
			}
			if !keep && lost != catalog.SaltWidth && lost != catalog.TableData && lost != catalog.TagkWidth && s != want {
				t.Errorf("Init of a record without %s: got  %+v\nwant %+v", lost, s, want)
			}
			if at := slices.IndexFunc(tablesOf(t, st), func(e store.Table) bool { return e.Name == s.Tables.Data }); at < 0 {
				t.Errorf("Init of a record with %v: its data table %s was not made", kept, s.Tables.Data)
			}
		}
	}
}

func tablesOf(t testing.TB, st store.Store) []store.Table {
	tables, err := st.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

func TestInit_OfAHalfWrittenRecordLooksAtTheRecordedDataTable(t *testing.T) {
	st := storetest.NewMem()
	loadGolden(t, st, "plain") // fills the table tsdb
	asked := goldenTables(nil)
	broken := storetest.Faulty(st, storetest.Fault{Verb: storetest.CheckAndPut})
	if _, _, err := catalog.Init(t.Context(), broken, own, asked); !errors.Is(err, store.ErrUnavailable) {
		t.Fatal(err)
	}
	put(t, st, own, "settings", "p", catalog.TableData, "tsdb")
	s, _, err := catalog.Init(t.Context(), st, own, map[string]string{catalog.TableUID: "uid", catalog.TableMeta: "meta"})
	if err != nil {
		t.Fatal(err)
	}
	if s.IndexComplete || s.Tables.Data != "tsdb" {
		t.Errorf("got %+v: its data table has rows that no index knows", s)
	}
}

func TestOpen_CorruptRecordIsAnError(t *testing.T) {
	for name, text := range map[string]string{
		catalog.SaltWidth: "wide", catalog.MetricWidth: "12", catalog.NamesMode: "", catalog.TableUID: "tsdb",
	} {
		st := storetest.NewMem()
		if _, _, err := catalog.Init(t.Context(), st, own, nil); err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		b.Put(own, []byte("settings"), "p", []byte(name), 1<<50, []byte(text))
		if err := st.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if _, err := catalog.Open(t.Context(), st, own, nil); !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("Open with %s=%q recorded: got %v, want ErrCorrupt", name, text, err)
		}
		if _, _, err := catalog.Init(t.Context(), st, own, nil); !errors.Is(err, mapping.ErrCorrupt) {
			t.Errorf("Init with %s=%q recorded: got %v, want ErrCorrupt", name, text, err)
		}
	}
}

// meeting lets CheckAndPut begin only when all have come to it.
type meeting struct {
	store.Store
	all *sync.WaitGroup
}

func (m meeting) CheckAndPut(ctx context.Context, checks []store.Check) ([]bool, error) {
	m.all.Done()
	m.all.Wait()
	return m.Store.CheckAndPut(ctx, checks)
}

func TestInit_OfTwoAtOnceOneWins(t *testing.T) {
	asked := []map[string]string{
		{catalog.SaltWidth: "1", catalog.TableData: "a"},
		{catalog.SaltWidth: "2", catalog.TableData: "b"},
	}
	st := storetest.NewMem()
	var all, done sync.WaitGroup
	all.Add(2)
	var got [2]catalog.Settings
	var errs [2]error
	for i := range asked {
		done.Go(func() { got[i], _, errs[i] = catalog.Init(t.Context(), meeting{st, &all}, own, asked[i]) })
	}
	done.Wait()
	winner := 0
	if errs[0] != nil {
		winner = 1
	}
	if errs[winner] != nil || !errors.Is(errs[1-winner], catalog.ErrMismatch) {
		t.Fatalf("got errors %v and %v, want none and ErrMismatch", errs[0], errs[1])
	}
	want := asked[winner]
	s := got[winner]
	if fmt.Sprint(s.Schema.SaltWidth) != want[catalog.SaltWidth] || s.Tables.Data != want[catalog.TableData] {
		t.Errorf("got %+v, want %v", s, want)
	}
	if s, err := catalog.Open(t.Context(), st, own, nil); err != nil || s != got[winner] {
		t.Errorf("Open: got %+v, %v, want %+v", s, err, got[winner])
	}
}

func TestInit_SucceedsAfterAnyCallFailed(t *testing.T) {
	asked := goldenTables(map[string]string{catalog.SaltBuckets: "7"})
	for _, when := range []storetest.When{storetest.Before, storetest.After} {
		for call := 1; ; call++ {
			mem := storetest.NewMem()
			if call%2 == 0 { // tables to adopt
				loadGolden(t, mem, "plain")
			}
			// Made before, so that the first read ends with the fault and not with an absent table.
			if err := mem.CreateTable(t.Context(), store.Table{Name: own, Families: []string{"p"}}); err != nil {
				t.Fatal(err)
			}
			faulty := storetest.Faulty(mem, storetest.Fault{Call: call, When: when})
			_, _, err := catalog.Init(t.Context(), faulty, own, asked)
			if faulty.Calls(storetest.Any) < call {
				if call < 8 || err != nil {
					t.Fatalf("Init ended after %d calls with %v", call-1, err)
				}
				break
			}
			// A read that has what it wants does not see what fails after that.
			if !errors.Is(err, store.ErrUnavailable) && (err != nil || when == storetest.Before) {
				t.Fatalf("Init with call %d failing: got %v, want ErrUnavailable", call, err)
			}
			s, _, err := catalog.Init(t.Context(), mem, own, asked)
			if err != nil || s.Schema.SaltBuckets != 7 || s.Tables.UID != "uid" || s.IndexComplete != (call%2 == 1) {
				t.Fatalf("Init after call %d had failed: got %+v, %v", call, s, err)
			}
			if opened, err := catalog.Open(t.Context(), mem, own, asked); err != nil || opened != s {
				t.Fatalf("Open after call %d had failed: got %+v, %v, want %+v", call, opened, err, s)
			}
		}
	}
}
