package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

// A clock that is years ahead drops no more than the right one.
func TestDropper_BelievesNoClockAlone(t *testing.T) {
	st, err := pebble.Open(pebble.Config{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.CreateTable(t.Context(), settings.Tables.ExemplarTable(0)); err != nil {
		t.Fatal(err)
	}
	const today, days = 20_000, 30
	var b store.Batch
	w := index.Writer{Tables: settings.Tables}
	tsuid := settings.Schema.AppendTSUID(nil, 1, []mapping.Tag{{Key: 1, Value: 1}})
	for day := mapping.Day(today - days + 1); day <= today; day++ {
		w.PutDay(&b, tsuid, day, 1, nil)
		row := settings.Schema.AppendRowKey(nil, tsuid, uint32(day)*24*3600)
		b.Put(settings.Tables.Data, row, catalog.FamilyData, []byte{0, 0}, 1, []byte{1})
	}
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	memory := storetest.Must(index.NewMemory(index.MemoryConfig{
		Store: st, Settings: settings, Logger: slog.New(slog.DiscardHandler),
	}))
	clock := time.UnixMilli(0).Add((today + 10*365) * 24 * time.Hour)
	d := dropper{
		opened: opened{logger: slog.New(slog.DiscardHandler), store: st, settings: settings},
		memory: memory, keep: 20 * 24 * time.Hour, now: func() time.Time { return clock },
	}
	for _, c := range []struct {
		clock time.Time
		left  int
	}{{clock, 21}, {time.UnixMilli(0).Add((today + 1) * 24 * time.Hour).Add(-time.Second), 20}} {
		clock = c.clock
		if _, _, err := d.drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := 0
		for _, err := range st.Scan(t.Context(), store.Scan{Table: settings.Tables.Data}) {
			if err != nil {
				t.Fatal(err)
			}
			left++
		}
		if left != c.left {
			t.Errorf("on %v rows of %d days are left, want %d", clock.UTC(), left, c.left)
		}
	}
}
