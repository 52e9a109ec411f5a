package hbase_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
)

// While the master is away, or silent, region servers go on, and so does the store: tables that exist are found to be
// what they should be, and are read and written. Only new ones have to wait.
func TestStore_NeedsNoMasterForTablesThatExist(t *testing.T) {
	made := open(t)
	defer made.Close()
	table := store.Table{Name: "there", Families: []string{"f", "g"}}
	if err := made.CreateTable(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	master := shared.Cluster(t).Master().Addr()
	if master == shared.Cluster(t).RegionServers()[0].Addr() {
		t.Fatal("the master cannot be told from the region server")
	}
	for name, dialMaster := range map[string]func(ctx context.Context) error{
		"away":   func(context.Context) error { return errors.New("connection refused") },
		"silent": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			config := cluster(t)
			config.OperationTimeout = 30 * time.Second
			config.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == master {
					return nil, dialMaster(ctx)
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}
			st, err := hbase.Open(hbase.Config{Client: config, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer st.Close()
			if err := st.CreateTable(t.Context(), table); err != nil {
				t.Fatalf("create what is there: %v", err)
			}
			other := store.Table{Name: "there", Families: []string{"f", "h"}}
			if err := st.CreateTable(t.Context(), other); !errors.Is(err, store.ErrInvalid) {
				t.Errorf("create with another family: got error %v", err)
			}
			var b store.Batch
			b.Put("there", []byte("r"), "f", []byte("q"), 0, []byte("v"))
			if err := st.Apply(t.Context(), &b); err != nil {
				t.Error(err)
			}
			at := store.Coord{Table: "there", Row: []byte("r"), Family: "g", Qualifier: []byte("n")}
			if _, err := st.Increment(t.Context(), at, 1); err != nil {
				t.Error(err)
			}
			n := 0
			for row, err := range st.Scan(t.Context(), store.Scan{Table: "there"}) {
				if err != nil || string(row.Key) != "r" || len(row.Cells) != 2 || row.Cells[1].Family != "g" {
					t.Errorf("got row %+v and error %v", row, err)
				}
				n++
			}
			if n != 1 {
				t.Errorf("got %d rows", n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err = st.CreateTable(ctx, store.Table{Name: "new", Families: []string{"f"}})
			if !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("create what is not there: got error %v", err)
			}
		})
	}
}
