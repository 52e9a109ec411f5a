package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

// ErrLost says that a writer has lost its lease, or cannot be sure that it has it: it must not acknowledge anything. It
// is an ErrUnavailable: another promtsd, or this one a little later, can take the request.
var ErrLost = fmt.Errorf("%w: the lease of this writer is lost", store.ErrUnavailable)

// Lease is what a writer says of itself in the store. It is changed by compare-and-set only, and must be changed within
// the time that it says itself; whoever sees it unchanged for longer may take the writer's journal over, which is such
// a change too. So no clocks are compared, and of several who want a journal one gets it.
//
// Whether it was right to take a journal over is no question of safety: the writer that lives on learns of it before it
// acknowledges anything more, see Writer.Confirm.
type Lease struct {
	Writer     ID     `json:"-"`
	Address    string `json:"address,omitempty"` // where the writer answers other promtsd
	Holder     ID     `json:"holder"`            // the writer itself, or the one who took its journal over
	Checkpoint uint64 `json:"frontier"`          // the samples of all entries below are in the data table
	Truncated  uint64 `json:"swept,omitempty"`   // entries below are deleted
	Revision   uint64 `json:"beat"`              // counts the changes
	// TTL is for how many milliseconds it is good without a change; 0: an older promtsd did not say.
	TTL int64 `json:"ttl_ms,omitempty"`
	// Ended says that its writer has stopped, and left samples in the journal: it can be taken over at once.
	Ended bool `json:"ended,omitempty"`

	raw []byte
}

// ttl is for how long the lease is good without a change; it is otherwise where the lease does not say.
func (l Lease) ttl(otherwise time.Duration) time.Duration {
	if l.TTL <= 0 {
		return otherwise
	}
	return time.Duration(l.TTL) * time.Millisecond
}

const leasePrefix = 'w'

var leaseQualifier = []byte("lease")

func leaseRow(id ID) []byte { return binary.BigEndian.AppendUint64([]byte{leasePrefix}, uint64(id)) }

// Leases reads all leases in the store, in order of their writers. The error of one that cannot be read,
// mapping.ErrCorrupt, comes with all others.
func Leases(ctx context.Context, st store.Store, tables catalog.Tables) ([]Lease, error) {
	var out []Lease
	var unreadable error
	scan := store.Scan{Table: tables.System, Ranges: []store.Range{{Start: []byte{leasePrefix},
		Stop: []byte{leasePrefix + 1}}}}
	for row, err := range st.Scan(ctx, scan) {
		if err != nil {
			return nil, fmt.Errorf("read leases: %w", err)
		}
		if l, err := parseLease(row); err == nil {
			out = append(out, l)
		} else if unreadable == nil {
			unreadable = err
		}
	}
	return out, unreadable
}

// RemoveUnreadableLeases removes leases that cannot be read, for which Leases returns mapping.ErrCorrupt. The entries
// of their writers then have no lease, and are replayed as such (see ReplayOrphans); a writer that lives begins a new
// journal.
func RemoveUnreadableLeases(ctx context.Context, c Config) error {
	scan := store.Scan{Table: c.Tables.System, Ranges: []store.Range{{Start: []byte{leasePrefix},
		Stop: []byte{leasePrefix + 1}}}}
	for row, err := range c.Store.Scan(ctx, scan) {
		if err != nil {
			return fmt.Errorf("read leases: %w", err)
		}
		if _, err = parseLease(row); err == nil {
			continue
		}
		c.Logger.Error("a lease is removed because it cannot be read; the entries of its writer are replayed one by one",
			"err", err)
		var b store.Batch
		for _, cell := range row.Cells {
			b.Delete(scan.Table, row.Key, cell.Family, cell.Qualifier, cell.Timestamp)
		}
		if err := c.Store.Apply(ctx, &b); err != nil {
			return fmt.Errorf("remove a lease that cannot be read: %w", err)
		}
	}
	return nil
}

func parseLease(row store.Row) (Lease, error) {
	var l Lease
	if len(row.Key) != 9 || len(row.Cells) != 1 || !bytes.Equal(row.Cells[0].Qualifier, leaseQualifier) {
		return l, fmt.Errorf("read %s: %w: not a row of a lease", formatRow(row.Key), mapping.ErrCorrupt)
	}
	value := row.Cells[0].Value
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("read %s: %w: %w", formatRow(row.Key), mapping.ErrCorrupt, err)
	}
	l.Writer = ID(binary.BigEndian.Uint64(row.Key[1:]))
	l.raw = slices.Clone(value)
	return l, nil
}

// change replaces the lease by next, if it still is what it was when it was read, or what an earlier change for the
// same holder made of it; ok says so.
func (l Lease) change(ctx context.Context, st store.Store, tables catalog.Tables, next Lease) (now Lease, ok bool,
	err error) {
	next.Revision = l.Revision + 1
	next.Checkpoint, next.Truncated = max(next.Checkpoint, l.Checkpoint), max(next.Truncated, l.Truncated)
	if next.raw, err = json.Marshal(next); err != nil {
		return l, false, err
	}
	check := store.Check{
		Coord: store.Coord{Table: tables.System, Row: leaseRow(next.Writer), Family: catalog.FamilySystem,
			Qualifier: leaseQualifier},
		Expect: l.raw, Value: next.raw,
	}
	done, err := st.CheckAndPut(ctx, []store.Check{check})
	if err == nil && done[0] {
		return next, true, nil
	}
	// It may have taken effect in spite of an error; and so may earlier ones of the same holder, which then stand in the
	// way of this one.
	found, readErr := next.read(ctx, st, tables)
	switch {
	case readErr != nil:
		return l, false, errors.Join(err, readErr)
	case found == nil:
	case bytes.Equal(found.raw, next.raw):
		return next, true, nil
	case err == nil && found.Holder == next.Holder:
		return found.change(ctx, st, tables, next)
	}
	return l, false, err
}

// read reads the lease as it is now; it is nil if there is none.
func (l Lease) read(ctx context.Context, st store.Store, tables catalog.Tables) (now *Lease, err error) {
	for row, err := range st.Get(ctx, store.Get{Table: tables.System, Rows: [][]byte{leaseRow(l.Writer)}}) {
		if err != nil {
			return nil, fmt.Errorf("read lease of writer %s: %w", l.Writer, err)
		}
		found, err := parseLease(row)
		return &found, err
	}
	return nil, nil
}

// drop removes the lease, if it still is what it was when it was read. If it is another's, that one removes it.
func (l Lease) drop(ctx context.Context, st store.Store, tables catalog.Tables) error {
	_, err := st.CheckAndPut(ctx, []store.Check{{Coord: l.coord(tables), Expect: l.raw, Delete: true}})
	return err
}

// coord is where the lease stands.
func (l Lease) coord(tables catalog.Tables) store.Coord {
	return store.Coord{
		Table: tables.System, Row: leaseRow(l.Writer), Family: catalog.FamilySystem, Qualifier: leaseQualifier,
	}
}

// Watch tells which leases have expired. Its caller reads the leases again and again, from one goroutine. The zero
// value is ready.
type Watch struct {
	seen map[ID]sighting
}

type sighting struct {
	revision uint64
	since    time.Time
}

// Expired returns those of the leases that have not changed for longer than they say, or than otherwise, where they do
// not say; now is a monotonic clock's.
func (w *Watch) Expired(leases []Lease, now time.Time, otherwise time.Duration) []Lease {
	next := make(map[ID]sighting, len(leases))
	var out []Lease
	for _, l := range leases {
		s, ok := w.seen[l.Writer]
		if !ok || s.revision != l.Revision {
			s = sighting{l.Revision, now}
		}
		next[l.Writer] = s
		// The holder counts from before its change reached the store, we from after: a fifth more is for clocks that run
		// at different speeds.
		if ttl := l.ttl(otherwise); l.Ended || now.Sub(s.since) > ttl+ttl/5 {
			out = append(out, l)
		}
	}
	w.seen = next
	return out
}
