// Package families keeps what is known of metric families, their metadata: type, help and unit, in promtsd's own table.
//
//	own table:  row 'm' | name of the family | family "p" | empty qualifier
//	            value: {"type":"counter","unit":"","help":"..."}, as JSON, which is as Prometheus's API shows it
//
// Of two that say different things of one family the one that was written last counts.
package families

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/metadata"
	"golang.org/x/time/rate"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

const prefix = 'm'

var emptyQualifier = []byte{}

// Bounds of what is kept of a family.
const (
	maxName = 8 << 10
	maxText = 64 << 10 // help and unit together
)

// Bounds of what a Writer adds to the store, names included. What is known there already is free: the families of the largest
// fleets have some megabytes.
const (
	burstBytes = 64 << 20 // at once
	hourBytes  = 16 << 20 // in each hour besides
)

// ErrLimited marks metadata that is not stored because too much was new. It is repeated by its sender, and may be stored later.
var ErrLimited = errors.New("too much new metadata")

const (
	// maxKnown bounds the families that a Writer knows, at some 40 bytes each.
	maxKnown = 100_000
	// knownFor is how long a Writer relies on what it knows. Then it writes it again, for another promtsd may have written
	// something else meanwhile that is no longer said by anyone.
	knownFor = time.Hour
)

// Writer puts metadata that is new into batches: a sender says the same every minute. It is safe for concurrent use. The
// zero value is not ready; see NewWriter.
type Writer struct {
	table string
	seed  maphash.Seed

	added *rate.Limiter

	mu    sync.Mutex
	known map[uint64]uint64 // by the hash of a family's name that of all that is in the store of it
	since time.Time         // when known was empty
}

// NewWriter returns a Writer for some tables.
func NewWriter(tables catalog.Tables) *Writer {
	return &Writer{table: tables.Own, seed: maphash.MakeSeed(), added: rate.NewLimiter(rate.Limit(hourBytes/time.Hour.Seconds()), burstBytes)}
}

// A Change is metadata that a batch holds.
type Change struct{ name, all uint64 }

// Put adds the metadata of a family to the batch, unless it is known to be in the store; changed says so. now is the clock
// in milliseconds. Metadata that cannot be kept is mapping.ErrInvalid, or ErrLimited.
func (w *Writer) Put(b *store.Batch, m mapping.RequestMetadata, now int64) (c Change, changed bool, err error) {
	if len(m.Family) == 0 || len(m.Family) > maxName || !utf8.Valid(m.Family) {
		return c, false, fmt.Errorf("%w: metadata of family %.64q: the name must be UTF-8 and have 1 to %d bytes",
			mapping.ErrInvalid, m.Family, maxName)
	}
	if n := len(m.Help) + len(m.Unit); n > maxText {
		return c, false, fmt.Errorf("%w: metadata of family %.64q: help and unit have %d bytes, at most %d can be kept",
			mapping.ErrInvalid, m.Family, n, maxText)
	}
	c = w.hash(m)
	if w.knows(c, now) {
		return c, false, nil
	}
	value, err := json.Marshal(metadata.Metadata{Type: model.MetricType(m.Type), Help: string(m.Help), Unit: string(m.Unit)})
	if err != nil {
		return c, false, fmt.Errorf("metadata of family %.64q: %w", m.Family, err)
	}
	if !w.added.AllowN(time.UnixMilli(now), len(m.Family)+len(value)) {
		return c, false, fmt.Errorf("%w: more than %d bytes at once, or %d in an hour", ErrLimited, burstBytes, hourBytes)
	}
	b.Put(w.table, rowKey(string(m.Family)), catalog.FamilyOwn, emptyQualifier, now, value)
	w.forget(c) // it may be stored although that fails
	return c, true, nil
}

// forget notes that it is not known what the store has of a family.
func (w *Writer) forget(c Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, c.name)
}

// Keep notes that changes are durable.
func (w *Writer) Keep(changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		if len(w.known) >= maxKnown {
			for name := range w.known { // any
				delete(w.known, name)
				break
			}
		}
		w.known[c.name] = c.all
	}
}

func (w *Writer) knows(c Change, now int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at := time.UnixMilli(now); w.known == nil || at.Sub(w.since).Abs() > knownFor {
		w.known, w.since = make(map[uint64]uint64), at
	}
	all, ok := w.known[c.name]
	return ok && all == c.all
}

func (w *Writer) hash(m mapping.RequestMetadata) Change {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, text := range [][]byte{m.Family, m.Help, m.Unit} {
		_, _ = h.Write(text)
		_ = h.WriteByte(0xff) // in no text
	}
	_, _ = h.WriteString(m.Type)
	return Change{maphash.Bytes(w.seed, m.Family), h.Sum64()}
}

func rowKey(name string) []byte { return append([]byte{prefix}, name...) }

// Reader reads what is kept, by whichever promtsd it was written. It is safe for concurrent use.
type Reader struct {
	Store  store.Store
	Tables catalog.Tables
}

// Metadata calls f with the metadata of the family with a name, if there is any; with an empty name with that of all
// families, ordered by name, of limit at most if that is above 0. It ends with the first error of f.
func (r Reader) Metadata(ctx context.Context, name string, limit int, f func(name string, m metadata.Metadata) error) error {
	rows := r.Store.Scan(ctx, store.Scan{
		Table: r.Tables.Own, Ranges: []store.Range{{Start: []byte{prefix}, Stop: []byte{prefix + 1}}}, Limit: max(limit, 0),
	})
	if name != "" {
		if len(name) > maxName {
			return nil
		}
		rows = r.Store.Get(ctx, store.Get{Table: r.Tables.Own, Rows: [][]byte{rowKey(name)}})
	}
	for row, err := range rows {
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		var m metadata.Metadata
		if err := json.Unmarshal(row.Cells[0].Value, &m); err != nil {
			return fmt.Errorf("read metadata of family %.64q: %w: %w", row.Key[1:], mapping.ErrCorrupt, err)
		}
		if err := f(string(row.Key[1:]), m); err != nil {
			return err
		}
	}
	return nil
}
