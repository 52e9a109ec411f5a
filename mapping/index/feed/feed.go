// Package feed is the change feed of the series index. Several processes may write to one store. Each adds to every
// batch with index rows a row of the feed, which repeats them, and reads the rows of the others every few seconds. So
// each process learns of new series without reading the days of the index again.
//
// A row of the feed stands in promtsd's own table:
//
//	row 'n' | writer (8 random bytes) | number (8 bytes, from 1) | family "p" | empty qualifier
//	value: of each index row: length (2 bytes) | day (2 bytes) | TSUID; length counts the day and the TSUID
//
// A writer numbers its rows one by one. Rows may become visible in another order, and some never do. A reader
// therefore reads again from the first number that it misses, until it has missed that number for so long that its
// batch must have failed. No clock of one process is compared with that of another, neither here nor where old rows
// are removed.
//
// Who may call what: Put and Fresh may be called at any time, by any goroutine. Run is called once; Read and Sweep are
// its steps. Read may also be called by others, Sweep not.
//
// Locks: Feed.mu makes calls of Read wait for one another, so it is held while the store is read and while Config.Apply
// and Config.Lose are called. Put and Fresh do not take it. A lock that those two functions take comes after Feed.mu.
package feed

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
)

const (
	rowPrefix = 'n'
	headBytes = 1 + 8 // prefix and writer
	keyBytes  = headBytes + 8
	rowBytes  = 64 << 10 // of a row's value, about

	maxGap   = 10 * time.Minute // how long a missing number is waited for; longer than any batch may take
	maxAge   = 2 * time.Hour    // for how long a row is seen before it is removed
	maxPause = maxAge / 2       // a reader that did not read for so long may have missed removed rows
	sweeps   = maxAge / 8       // how often rows are removed
)

// Config is what a Feed needs.
type Config struct {
	Store store.Store
	Table string // promtsd's own
	// Interval is how old the last Read may be while Fresh is true. Run reads twice in it.
	Interval time.Duration
	Logger   *slog.Logger

	// Apply takes in changes of another process: days and the TSUIDs of series that were active on them. A TSUID is
	// valid until the next one. nil: this process keeps no index in memory; Run does not Read, nor may anyone else.
	Apply func(changes iter.Seq2[mapping.Day, []byte])
	// Lose says that changes may have been missed: what is in memory must be read from the index anew.
	Lose func()
}

// Feed tells other processes what this one adds to the index, and reads what they have added.
type Feed struct {
	Config
	id     writerID
	number atomic.Uint64             // the last one of this writer
	began  atomic.Pointer[time.Time] // when the last Read that succeeded began; nil before the first
	marks  map[writerID][]mark       // of the rows to be removed; only Sweep uses them

	mu      sync.Mutex // held by one Read at a time; guards what follows
	writers map[writerID]*position
}

// writerID tells writers apart.
type writerID [8]byte

// New returns a Feed of a new writer.
func New(c Config) *Feed {
	f := &Feed{Config: c, writers: make(map[writerID]*position), marks: make(map[writerID][]mark)}
	_, _ = rand.Read(f.id[:]) // never fails
	return f
}

// Run reads changes, and removes old rows of all writers, until ctx ends.
func (f *Feed) Run(ctx context.Context) {
	reads, sweeping := time.NewTicker(max(f.Interval/2, time.Millisecond)), time.NewTicker(sweeps)
	defer reads.Stop()
	defer sweeping.Stop()
	failing := false
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-reads.C:
			if f.Apply != nil {
				err = f.Read(ctx)
			}
		case now := <-sweeping.C:
			if err := f.Sweep(ctx, now); err != nil && ctx.Err() == nil {
				f.Logger.Warn("old rows of the index's change feed are not removed; trying again", "err", err)
			}
			continue
		}
		if err != nil && !failing && ctx.Err() == nil {
			f.Logger.Warn("series that other promtsd add are not seen: queries read the index from the store meanwhile",
				"err", err)
		}
		failing = err != nil
	}
}

// Put adds to a batch the rows that repeat some of its index rows, for other processes. indexRows are their positions
// in the batch, at least one; the key of each is one byte, then the day and the TSUID.
func (f *Feed) Put(b *store.Batch, indexRows []int) {
	var value []byte
	now := b.At(indexRows[0]).Timestamp
	put := func() {
		b.Put(f.Table, appendKey(nil, f.id, f.number.Add(1)), catalog.FamilySystem, []byte{}, now, value)
		value = value[:0]
	}
	for _, i := range indexRows {
		change := b.At(i).Row[1:]
		value = binary.BigEndian.AppendUint16(value, uint16(len(change)))
		if value = append(value, change...); len(value) >= rowBytes {
			put()
		}
	}
	if len(value) > 0 {
		put()
	}
}

// Fresh says whether all is known that other processes had added an Interval ago.
func (f *Feed) Fresh() bool {
	began := f.began.Load()
	return began != nil && elapsed(*began, time.Now()) <= f.Interval
}

// FormatKey writes the key of a row of the feed, for people and for ParseKey; ok is false for any other row.
//
//	change 17 of the index, by 0123456789abcdef
func FormatKey(row []byte) (text string, ok bool) {
	if len(row) != keyBytes || row[0] != rowPrefix {
		return "", false
	}
	id, number := parseKey(row)
	return fmt.Sprintf("change %d of the index, by %x", number, id), true
}

// ParseKey reads what FormatKey wrote. The error wraps mapping.ErrInvalid.
func ParseKey(text string) (row []byte, err error) {
	var number uint64
	var id []byte
	if n, err := fmt.Sscanf(text, "change %d of the index, by %x", &number, &id); n != 2 || err != nil || len(id) != 8 {
		return nil, fmt.Errorf("%w: key %q of the change feed, want such as %q", mapping.ErrInvalid, text,
			"change 17 of the index, by 0123456789abcdef")
	}
	return appendKey(nil, writerID(id), number), nil
}

func appendKey(dst []byte, id writerID, number uint64) []byte {
	return binary.BigEndian.AppendUint64(append(append(dst, rowPrefix), id[:]...), number)
}

// parseKey takes a key of keyBytes apart.
func parseKey(row []byte) (id writerID, number uint64) {
	return writerID(row[1:]), binary.BigEndian.Uint64(row[headBytes:])
}

// head is what all keys of a writer begin with.
func (id writerID) head() []byte { return append([]byte{rowPrefix}, id[:]...) }

// Changes are the days and TSUIDs that the value of a row lists. A value that no writer has made ends where it cannot
// be read.
func Changes(value []byte) iter.Seq2[mapping.Day, []byte] {
	return func(yield func(mapping.Day, []byte) bool) {
		for len(value) >= 2 {
			size := int(binary.BigEndian.Uint16(value))
			if value = value[2:]; size > len(value) || size < 2 {
				return
			}
			if !yield(mapping.Day(binary.BigEndian.Uint16(value)), value[2:size:size]) {
				return
			}
			value = value[size:]
		}
	}
}
