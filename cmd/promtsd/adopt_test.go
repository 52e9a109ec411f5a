package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// older is a store as a promtsd sets it up that knows no exemplars.
type older struct{ store.Store }

func (o older) CreateTable(ctx context.Context, t store.Table) error {
	if t.Name == "promtsd-exemplars" {
		return nil
	}
	return o.Store.CreateTable(ctx, t)
}

func TestAdopt_MakesTheTableOfExemplarsWhereItIsMissing(t *testing.T) {
	for _, url := range []string{"pebble:data", "hbase://localhost"} {
		st := storetest.NewMem()
		f := serveFlags{store: &storeFlags{url: url, systemTable: "promtsd"}, settings: &settingFlags{}}
		made := func() bool {
			tables, err := st.Tables(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return slices.ContainsFunc(tables, func(t store.Table) bool { return t.Name == "promtsd-exemplars" })
		}
		before, _, err := catalog.Init(t.Context(), older{st}, "promtsd", nil)
		if err != nil || made() {
			t.Fatalf("the older one made it: %v, or %v", made(), err)
		}
		for range 2 {
			settings, err := f.adopt(t.Context(), slog.New(slog.DiscardHandler), st)
			if err != nil || settings != before || !made() {
				t.Errorf("%s: got %+v, %v, made it: %v", url, settings, err, made())
			}
		}
	}
}

// In a cluster nothing is made where no promtsd has been: the address may be a wrong one.
func TestAdopt_MakesNothingInAClusterWithoutSettings(t *testing.T) {
	st := storetest.NewMem()
	f := serveFlags{store: &storeFlags{url: "hbase://localhost", systemTable: "promtsd"}, settings: &settingFlags{}}
	_, err := f.adopt(t.Context(), slog.New(slog.DiscardHandler), st)
	if tables, listed := st.Tables(t.Context()); !errors.Is(err, catalog.ErrNotInitialised) || listed != nil ||
		len(tables) > 0 {
		t.Errorf("got error %v, and tables %v, %v, want none", err, tables, listed)
	}
}
