package pebble

import (
	"errors"
	"fmt"
	"sync"

	crdb "github.com/cockroachdb/errors"
	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"

	"github.com/promtsd/promtsd/store"
)

// logDir is the directory of the log tables' tree below that of the store.
const logDir = "log"

// tree is one of the two LSM trees of a store: the one of the data, with the catalog, or the one of the log tables.
type tree struct {
	name   string // "data" or "log", as metrics and log lines call it
	db     *lsm.DB
	health *health
	lazy   *lazyFS // of a store without syncs, else nil

	// writeMu orders what reads before it writes (exclusive) with plain writes (shared). It is held until a batch is
	// visible, not until it is durable: the log keeps the order, so whoever waits for a later write waits for all before.
	// In a tree with a live set, every write is exclusive.
	writeMu sync.RWMutex

	reaper *reaper // of the tree of the log tables, else nil
	data   *tree   // the other tree, of the tree of the log tables, else nil
}

// openTree opens a tree on a goroutine of its own, because the tree ends the goroutine on which it meets a fatal error
// (see health.Fatalf).
func openTree(name, dir string, opts *lsm.Options, h *health, lazy *lazyFS) (t *tree, err error) {
	t = &tree{name: name, health: h, lazy: lazy}
	if lazy != nil {
		opts.FS = lazy
	}
	opts.WithFSDefaults()
	opts.FS = &diskFS{FS: opts.FS, health: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("%w: the tree gave up: %v", store.ErrUnavailable, p)
			}
		}()
		if t.db, err = openDB(dir, opts); err != nil && lazy != nil {
			var place string
			if place, err = cutLog(opts.FS, dir, err); err == nil {
				h.log.Warn(
					"cut a log off behind what a crash of the machine left whole; what was written without syncs just before is lost",
					"log", place)
				t.db, err = openDB(dir, opts)
			}
		}
	}()
	<-ended
	switch {
	case err != nil && t.db == nil:
		return nil, classify(err)
	case t.db == nil:
		return nil, h.failure()
	}
	return t, nil
}

// openDB opens the LSM tree in a directory, or makes it. A new tree begins its write-ahead log before it takes over the
// format version of opts, and a log in an older version lacks what tells damage from the end that a crash leaves. So
// the tree finds the version recorded, as it does when it is opened again.
func openDB(dir string, opts *lsm.Options) (*lsm.DB, error) {
	if err := opts.FS.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	have, err := lsm.Peek(dir, opts.FS)
	if err == nil && !have.Exists && have.OptionsFilename == "" && have.FormatMajorVersion == lsm.FormatDefault {
		err = recordVersion(dir, opts)
	}
	if err != nil {
		return nil, err
	}
	db, err := lsm.Open(dir, opts)
	if err != nil {
		if where := crdb.FlattenDetails(err); where != "" {
			err = fmt.Errorf("%w (%s)", err, where)
		}
		return nil, err
	}
	return db, nil
}

// recordVersion writes the format version of opts where the tree looks for it.
func recordVersion(dir string, opts *lsm.Options) error {
	marker, _, err := atomicfs.LocateMarker(opts.FS, dir, "format-version")
	if err != nil {
		return err
	}
	return errors.Join(marker.Move(opts.FormatMajorVersion.String()), marker.Close())
}

func (t *tree) close() error { return classify(t.db.Close()) }

// commit applies b, which it then owns, as a plain write.
func (t *tree) commit(b *lsm.Batch) error {
	if t.reaper != nil {
		t.writeMu.Lock()
		return t.commitLocked(b, t.writeMu.Unlock)
	}
	t.writeMu.RLock()
	return t.commitLocked(b, t.writeMu.RUnlock)
}

// commitLocked applies b, which it then owns, calls unlock as soon as b is visible, and waits until b is durable.
func (t *tree) commitLocked(b *lsm.Batch, unlock func()) error {
	if b.Empty() {
		unlock()
		_ = b.Close()
		return nil
	}
	err := t.applyLocked(b)
	unlock()
	if err == nil {
		err = b.SyncWait()
	}
	_ = b.Close()
	if err != nil {
		t.health.fail(err)
		return classify(err)
	}
	if t.reaper != nil {
		t.reaper.wake()
	}
	return nil
}

func (t *tree) applyLocked(b *lsm.Batch) error {
	if t.reaper != nil {
		if err := t.reaper.note(b); err != nil {
			return err
		}
	}
	return t.db.ApplyNoSyncWait(b, lsm.Sync)
}

// commitDeletes applies a batch with deletes, which it then owns. Each of them takes effect only if the cell it meets,
// in the tree or in the batch before it, is not newer; times are their timestamps in their order.
func (t *tree) commitDeletes(encoded *lsm.Batch, times []int64) error {
	defer func() { _ = encoded.Close() }()
	if err := t.syncDue(); err != nil {
		return err
	}
	t.writeMu.Lock()
	b, err := t.filterDeletes(encoded, times)
	if err != nil {
		t.writeMu.Unlock()
		return err
	}
	return t.commitLocked(b, t.writeMu.Unlock)
}

// filterDeletes copies a batch without the deletes that have no effect.
func (t *tree) filterDeletes(encoded *lsm.Batch, times []int64) (b *lsm.Batch, err error) {
	b = t.db.NewBatch()
	defer func() {
		if err != nil {
			_ = b.Close()
		}
	}()
	// What the batch did to its keys so far, for the deletes that follow: the timestamps of puts, nil for deletes.
	var seen map[string]*int64
	if int(encoded.Count()) > len(times) {
		seen = map[string]*int64{}
	}
	for r := encoded.Reader(); ; {
		kind, key, value, ok, err := r.Next()
		if err != nil || !ok {
			return b, classify(err)
		}
		if kind == lsm.InternalKeyKindSet {
			h, err := parseHeader(value)
			if err != nil {
				return b, err
			}
			seen[string(key)] = &h.timestamp
			if err := b.Set(key, value, nil); err != nil {
				return b, classify(err)
			}
			continue
		}
		timestamp := times[0]
		times = times[1:]
		have, met := seen[string(key)]
		if !met {
			if have, err = t.timestamp(key); err != nil {
				return b, err
			}
		}
		if have == nil || *have > timestamp {
			continue
		}
		if seen != nil {
			seen[string(key)] = nil
		}
		if err := b.Delete(key, nil); err != nil {
			return b, classify(err)
		}
	}
}

// timestamp is that of a cell, nil if there is none. The caller holds writeMu exclusively.
func (t *tree) timestamp(key []byte) (*int64, error) {
	if t.reaper != nil {
		return t.reaper.live.timestamp(key), nil
	}
	raw, closer, err := t.db.Get(key)
	if errors.Is(err, lsm.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	h, err := parseHeader(raw)
	if closeErr := closer.Close(); err == nil {
		err = classify(closeErr)
	}
	return &h.timestamp, err
}

// syncDue is called before cells are deleted. Cells of log tables are deleted when what they stand for is in other
// tables: no crash may take that back and leave them deleted. (A store with syncs has synced what it acknowledged.)
func (t *tree) syncDue() error {
	if t.data == nil || t.data.lazy == nil {
		return nil
	}
	return classify(t.data.lazy.syncDue())
}
