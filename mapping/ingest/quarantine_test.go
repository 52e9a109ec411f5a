package ingest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// left is a store with the journal of a promtsd that died after three requests, one for each of the series a, b and c.
func left(t *testing.T) store.Store {
	t.Helper()
	st := storetest.NewMem()
	db := open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b", "c"} {
		db.append(t, raw("__name__", name), sample(now+int64(i), 1))
	}
	db.Abandon()
	return st
}

// entryCell is the cell of one of the entries of left.
func entryCell(t *testing.T, st store.Store, number int) (row, value []byte) {
	t.Helper()
	for r, err := range st.Scan(t.Context(), store.Scan{Table: "promtsd-journal"}) {
		if err != nil {
			t.Fatal(err)
		}
		if number--; number == 0 {
			return append([]byte(nil), r.Key...), append([]byte(nil), r.Cells[0].Value...)
		}
	}
	t.Fatal("there is no such entry")
	return nil, nil
}

// put writes a cell: of an entry with the timestamp that it has, any other as the latest.
func put(t *testing.T, st store.Store, table string, row []byte, family string, qualifier, value []byte) {
	t.Helper()
	var b store.Batch
	timestamp := now
	if family != catalog.FamilySystem {
		timestamp = 0
	}
	b.Put(table, row, family, qualifier, timestamp, value)
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func inQuarantine(t *testing.T, st store.Store) []journal.Quarantined {
	t.Helper()
	entries, err := journal.InQuarantine(t.Context(), st, catalog.DefaultTables())
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// newer is the decoder of a promtsd that is older than the entries.
type newer struct{}

func (newer) Decode(byte, []byte, *request.Write) error { return mapping.ErrNewer }

// Whatever is wrong with one entry, the others are stored, promtsd starts, and the entry is kept until it can be
// replayed.
func TestStart_PutsAnEntryThatCannotBeReplayedIntoQuarantine(t *testing.T) {
	for _, c := range []struct {
		name  string
		class journal.Class
		spoil func(t *testing.T, st store.Store) (mend func(row []byte))
		word  string // in the reason
	}{
		{"damaged", journal.Damaged, func(t *testing.T, st store.Store) func([]byte) {
			row, value := entryCell(t, st, 2)
			whole := append([]byte(nil), value...)
			value[len(value)/2] ^= 1
			put(t, st, "promtsd-journal", row, catalog.FamilySystem, nil, value)
			return func(row []byte) { put(t, st, "promtsd", row, catalog.FamilySystem, nil, whole) }
		}, "checksum"},
		{"of a form that is not known", journal.Newer, func(t *testing.T, st store.Store) func([]byte) {
			row, value := entryCell(t, st, 2)
			e, err := journal.ParseEntry(value)
			if err != nil {
				t.Fatal(err)
			}
			known := e.Encoding
			e.Encoding = 99
			put(t, st, "promtsd-journal", row, catalog.FamilySystem, nil, journal.AppendEntry(nil, &e))
			return func(row []byte) { // what an upgrade would know of
				e.Encoding = known
				put(t, st, "promtsd", row, catalog.FamilySystem, nil, journal.AppendEntry(nil, &e))
			}
		}, "newer promtsd"},
		{"with a UID that cannot be read", journal.BadUID, func(t *testing.T, st store.Store) func([]byte) {
			cell := func(value ...byte) { put(t, st, "tsdb-uid", []byte("b"), "id", []byte("metrics"), value) }
			cell(1, 2)
			return func([]byte) { cell(0, 0, 2) }
		}, `metrics name "b"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := left(t)
			mend := c.spoil(t, st)
			var config ingest.Config
			db := open(t, st, nil, func(c *ingest.Config) {
				buffered(c)
				c.Buffer.NewDecoder = func() ingest.Decoder { return newer{} }
				config = *c
			})
			if err := db.Start(t.Context()); err != nil {
				t.Fatalf("start: %v", err)
			}
			if got := read(t, st, db.settings.Schema); len(got) != 2 {
				t.Errorf("%d series are stored, want those of the two other entries", len(got))
			}
			db.append(t, raw("__name__", "d"), sample(now, 1))
			db.Abandon()
			if n := cellsOf(t, st, "promtsd-journal"); n != 1 {
				t.Errorf("the journals hold %d entries, want the one of the new writer", n)
			}
			entries := inQuarantine(t, st)
			if len(entries) != 1 || entries[0].Class != c.class || !strings.Contains(entries[0].Reason, c.word) ||
				entries[0].Arrived != now || entries[0].Latest != now+limits.Future.Milliseconds() || entries[0].Number != 2 {
				t.Fatalf("in quarantine is %+v, want entry 2, %s, because of %s", entries, c.class, c.word)
			}

			retry := func() (int, error) {
				samples, ok, err := ingest.Retry(t.Context(), config, entries[0].Writer, 2)
				if !ok {
					t.Fatal("retry did not find the entry")
				}
				return samples, err
			}
			if _, err := retry(); err == nil {
				t.Error("a retry with nothing mended succeeded")
			} else if _, ok := errors.AsType[*journal.EntryError](err); !ok || len(inQuarantine(t, st)) != 1 {
				t.Errorf("a retry with nothing mended: %v, and in quarantine is %v", err, inQuarantine(t, st))
			}
			row := append([]byte("q"), make([]byte, 16)...)
			for r, err := range st.Scan(t.Context(), store.Scan{Table: "promtsd",
				Ranges: []store.Range{{Start: []byte("q"), Stop: []byte("r")}}}) {
				if err != nil {
					t.Fatal(err)
				}
				copy(row, r.Key)
			}
			mend(row)
			config.UIDs.Close()
			if samples, err := retryWith(t, st, entries[0]); err != nil || samples != 1 {
				t.Errorf("a retry of what was mended: %d samples, %v, want 1", samples, err)
			}
			if got := read(t, st, db.settings.Schema); len(got) != 3 || len(inQuarantine(t, st)) != 0 {
				t.Errorf("%d series are stored, and in quarantine is %v, want 3, and nothing", len(got), inQuarantine(t, st))
			}
		})
	}
}

// retryWith retries an entry as a promtsd does that knows nothing yet.
func retryWith(t *testing.T, st store.Store, q journal.Quarantined) (int, error) {
	t.Helper()
	var config ingest.Config
	open(t, st, nil, func(c *ingest.Config) {
		buffered(c)
		config = *c
	})
	samples, _, err := ingest.Retry(t.Context(), config, q.Writer, q.Number)
	return samples, err
}

// A lease that cannot be read stops nobody, and loses nothing.
func TestStart_ReplaysTheEntriesOfALeaseThatCannotBeRead(t *testing.T) {
	for name, alone := range map[string]bool{"alone": true, "in a cluster": false} {
		t.Run(name, func(t *testing.T) {
			st := left(t)
			leases, err := journal.Leases(t.Context(), st, catalog.DefaultTables())
			if err != nil || len(leases) != 1 {
				t.Fatal(leases, err)
			}
			lease := store.Coord{Table: "promtsd", Row: binary.BigEndian.AppendUint64([]byte("w"), uint64(leases[0].Writer)),
				Family: catalog.FamilySystem, Qualifier: []byte("lease")}
			for row, err := range st.Get(t.Context(), store.Get{Table: lease.Table, Rows: [][]byte{lease.Row}}) {
				if err != nil {
					t.Fatal(err)
				}
				check := store.Check{Coord: lease, Expect: bytes.Clone(row.Cells[0].Value), Value: []byte("{")}
				if done, err := st.CheckAndPut(t.Context(), []store.Check{check}); err != nil || !done[0] {
					t.Fatal(done, err)
				}
			}
			db := open(t, st, nil, func(c *ingest.Config) {
				buffered(c)
				c.SingleProcess = alone
			})
			if err := db.Start(t.Context()); err != nil {
				t.Fatalf("start: %v", err)
			}
			defer db.Abandon()
			if got := read(t, st, db.settings.Schema); len(got) != 3 || cellsOf(t, st, "promtsd-journal") != 0 {
				t.Errorf("%d series are stored and %d entries left, want 3 and 0", len(got), cellsOf(t, st, "promtsd-journal"))
			}
		})
	}
}

// A store that is away for a moment says nothing of an entry.
func TestStart_PutsNothingIntoQuarantineWhenTheStoreIsAway(t *testing.T) {
	for call := 1; ; call++ {
		st := left(t)
		faulty := storetest.Faulty(st, storetest.Fault{Verb: storetest.Any, Call: call})
		db := open(t, st, nil, func(c *ingest.Config) { buffered(c); c.Store = faulty })
		err := db.Start(t.Context())
		if n := len(inQuarantine(t, st)); n > 0 {
			t.Fatalf("call %d: %d entries are in quarantine, after %v", call, n, err)
		}
		if err == nil {
			db.Abandon()
			if faulty.Calls(storetest.Any) < call {
				return
			}
		}
	}
}

// Series that were refused because of a damaged UID were never acknowledged: a replay need not mind them.
func TestStart_LeavesOutWhatWasRefusedForADamagedUID(t *testing.T) {
	st := storetest.NewMem()
	db := open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, st, "tsdb-uid", []byte("b"), "id", []byte("metrics"), []byte{1})
	var req request.Write
	add(&req, raw("__name__", "a"), sample(now, 1))
	add(&req, raw("__name__", "b"), sample(now, 1))
	if got, err := db.Append(t.Context(), &req); err != nil || got.Written != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	db.Abandon()
	db = open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Abandon()
	if got := read(t, st, db.settings.Schema); len(got) != 1 || len(inQuarantine(t, st)) != 0 {
		t.Errorf("%d series are stored, and in quarantine is %v, want 1, and nothing", len(got), inQuarantine(t, st))
	}
}

// What comes without a body of remote write is compressed in the journal, and replayed.
func TestBuffered_CompressesRequestsWithoutABody(t *testing.T) {
	st := storetest.NewMem()
	db := open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var req request.Write
	for i := range 200 {
		add(&req, raw("__name__", "http_requests_total", "instance", "10.0.0.1:9090", "n", string(rune('a'+i))),
			sample(now, 1))
	}
	if got, err := db.Append(t.Context(), &req); err != nil || got.Written != 200 {
		t.Fatalf("got %+v, %v", got, err)
	}
	_, value := entryCell(t, st, 1)
	if flat := len(req.AppendFlat(nil, nil)); len(value) > flat/4 {
		t.Errorf("the entry has %d bytes, the request in its flat form %d", len(value), flat)
	}
	db.Abandon()
	db = open(t, st, nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer db.Abandon()
	if got := read(t, st, db.settings.Schema); len(got) != 200 {
		t.Errorf("%d series are stored, want 200", len(got))
	}
}
