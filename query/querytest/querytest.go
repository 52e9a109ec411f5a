// Package querytest makes databases for tests: a store with the real write path and the real read path on it. What a
// query must answer is told by remotetest.Model.
package querytest

import (
	"log/slog"
	"testing"
	"time"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// Database is a store with what stands on it.
type Database struct {
	Store    store.Store
	Settings catalog.Settings
	UIDs     *uid.Registry
	Appender *ingest.Appender
	Querier  *query.Querier
}

// Options change what New makes; the zero value is an Appender in write-through mode and a Querier without an index in
// memory.
type Options struct {
	Requested map[string]string // settings of the store, where it has none yet
	Now       func() time.Time  // nil: the clock
	Ingest    func(*ingest.Config)
	Index     func(*index.Config)
	Query     func(*query.Config)
}

// New initialises a store and puts a Database on it. The store is the caller's to close; UIDs are closed with the test.
func New(t testing.TB, st store.Store, o Options) *Database {
	t.Helper()
	settings, _, err := catalog.Init(t.Context(), st, "promtsd", o.Requested)
	if err != nil {
		t.Fatal(err)
	}
	db := Over(st, settings, o)
	t.Cleanup(db.UIDs.Close)
	return db
}

// Over puts a Database on a store with these settings. Its UIDs are the caller's to close.
func Over(st store.Store, settings catalog.Settings, o Options) *Database {
	if o.Now == nil {
		o.Now = time.Now
	}
	logger := slog.New(slog.DiscardHandler)
	uids := storetest.Must(uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names, Logger: logger,
		CacheEntries: 1000,
	}))
	ingestion := ingest.Config{
		Store: st, Settings: settings, UIDs: uids, CacheSize: 1000, Now: o.Now,
		Limits: ingest.Limits{Labels: 128, LabelName: 1024, LabelValue: 8192},
	}
	if o.Ingest != nil {
		o.Ingest(&ingestion)
	}
	reading := index.Config{Store: st, Settings: settings, UIDs: uids}
	if o.Index != nil {
		o.Index(&reading)
	}
	querying := query.Config{Store: st, Settings: settings, Logger: logger, Index: index.NewReader(reading)}
	if o.Query != nil {
		o.Query(&querying)
	}
	return &Database{
		Store: st, Settings: settings, UIDs: uids,
		Appender: storetest.Must(ingest.New(ingestion)), Querier: storetest.Must(query.New(querying)),
	}
}
