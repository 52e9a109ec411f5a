package families

import (
	"container/list"
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
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
)

// Bounds of what is stored of all families together, names included. The families of the largest fleets have some
// megabytes. A sender may bring half of each, so that no single one fills them; and as many bytes at once, and in an
// hour, as there may be, or it could write without end what replaces itself.
const (
	maxFamilies = 100_000
	maxBytes    = 32 << 20

	senderFamilies = maxFamilies / 2
	senderBytes    = maxBytes / 2
)

// ErrLimited marks metadata that is not stored because there is too much. It is repeated by its sender, and may be
// stored later.
var ErrLimited = errors.New("too much metadata")

const (
	// knownFor is how long a Writer relies on what it knows. Then it writes it again, for another promtsd may have written
	// something else meanwhile that is no longer said by anyone.
	knownFor = time.Hour
	// quietAfter is how long a family is not said by anyone until it gives way to others, if it must.
	quietAfter = time.Hour
	// manySenders are so many that those of whom nothing is stored are forgotten.
	manySenders = 1024
)

// Writer puts metadata that is new into batches: a sender says the same every minute. It bounds what is stored: beyond,
// what nobody has said for an hour is removed, and if there is nothing like that, what is new is refused. It is safe
// for concurrent use; Load comes first.
type Writer struct {
	store store.Store
	table string
	seed  maphash.Seed

	loading chan struct{} // has an entry while somebody loads

	mu      sync.Mutex // guards what follows
	loaded  bool
	known   map[string]*family // by name: what is in the store
	bytes   int                // of these
	said    *list.List         // of those that were said lately: *family, in the order in which they were said last
	quiet   *list.List         // of the others
	senders map[string]*sender
	since   time.Time // when it was last not known what the families are
}

// family is what a Writer knows of one.
type family struct {
	name  string
	all   uint64 // the hash of what is stored; 0: that is not known, as while it is being written
	bytes int    // that it takes
	at    int64  // when it was said last, in milliseconds since 1970
	by    *sender
	quiet bool
	place *list.Element
}

// sender is who brought families that are said lately.
type sender struct {
	families, bytes int
	written         *rate.Limiter // in bytes
}

// NewWriter returns a Writer for some tables of a store.
func NewWriter(st store.Store, tables catalog.Tables) *Writer {
	return &Writer{
		store: st, table: tables.System, seed: maphash.MakeSeed(), loading: make(chan struct{}, 1),
		known: make(map[string]*family), said: list.New(), quiet: list.New(), senders: make(map[string]*sender),
	}
}

// Load finds out, the first time, what is in the store. now is the clock in milliseconds.
func (w *Writer) Load(ctx context.Context, now int64) error {
	if w.isLoaded() {
		return nil
	}
	select {
	case w.loading <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-w.loading }()
	if w.isLoaded() {
		return nil
	}
	var found []*family
	bytes := 0
	for row, err := range w.store.Scan(ctx, store.Scan{Table: w.table, Ranges: allRows}) {
		if err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		n := len(row.Key) - 1 + len(row.Cells[0].Value)
		if len(found) == maxFamilies || bytes+n > maxBytes {
			break // another promtsd, or an older one, has stored more
		}
		bytes += n
		found = append(found, &family{name: string(row.Key[1:]), bytes: n, at: now})
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range found {
		w.enter(f)
	}
	w.loaded, w.since = true, time.UnixMilli(now)
	return nil
}

func (w *Writer) isLoaded() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loaded
}

// Size is how many families a Writer knows to be stored, and the bytes that they take.
func (w *Writer) Size() (families, bytes int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.known), w.bytes
}

// A Change is metadata that a batch holds.
type Change struct {
	name string
	all  uint64
}

// Put adds the metadata of a family, as a sender said it, to the batch, unless it is known to be in the store; changed
// says so. now is the clock in milliseconds. Metadata that cannot be kept is mapping.ErrInvalid, or ErrLimited.
func (w *Writer) Put(b *store.Batch, m request.Metadata, from string, now int64) (c Change, changed bool,
	err error) {
	if len(m.Family) == 0 || len(m.Family) > maxName || !utf8.Valid(m.Family) {
		return c, false, fmt.Errorf("%w: metadata of family %.64q: the name must be UTF-8 and have 1 to %d bytes",
			mapping.ErrInvalid, m.Family, maxName)
	}
	if n := len(m.Help) + len(m.Unit); n > maxText {
		return c, false, fmt.Errorf("%w: metadata of family %.64q: help and unit have %d bytes, at most %d can be kept",
			mapping.ErrInvalid, m.Family, n, maxText)
	}
	all := w.hash(m)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.age(now)
	s := w.sender(from)
	f := w.known[string(m.Family)]
	if f != nil {
		w.say(f, s, now)
		if f.all == all {
			return c, false, nil
		}
	}
	value, err := json.Marshal(metadata.Metadata{Type: model.MetricType(m.Type), Help: string(m.Help),
		Unit: string(m.Unit)})
	if err != nil {
		return c, false, fmt.Errorf("metadata of family %.64q: %w", m.Family, err)
	}
	n := len(m.Family) + len(value)
	if f, err = w.replace(b, f, string(m.Family), n, s, now); err != nil {
		return c, false, err
	}
	b.Put(w.table, rowKey(f.name), catalog.FamilySystem, emptyQualifier, now, value)
	return Change{f.name, all}, true, nil
}

// replace enters a family of n bytes of a sender, in place of an old one of its name unless that is nil.
func (w *Writer) replace(b *store.Batch, old *family, name string, n int, s *sender, now int64) (f *family, err error) {
	if old != nil {
		by := old.by
		w.leave(old)
		defer func() {
			if err != nil {
				w.enter(old)
				w.charge(old, by)
			}
		}()
	}
	if s.families == senderFamilies || s.bytes+n > senderBytes {
		return nil, fmt.Errorf("%w: a sender may bring %d families and %d bytes", ErrLimited, senderFamilies, senderBytes)
	}
	var gone []*family // quiet ones, to make room
	families, bytes := len(w.known), w.bytes
	full := func() bool { return families >= maxFamilies || bytes+n > maxBytes }
	for e := w.quiet.Front(); e != nil && full(); e = e.Next() {
		f := e.Value.(*family)
		gone = append(gone, f)
		families, bytes = families-1, bytes-f.bytes
	}
	if full() {
		return nil, fmt.Errorf("%w: %d families with %d bytes are stored, and said within %v", ErrLimited, families, bytes,
			quietAfter)
	}
	if !s.written.AllowN(time.UnixMilli(now), n) {
		return nil, fmt.Errorf("%w: a sender may bring %d bytes in %v", ErrLimited, maxBytes, knownFor)
	}
	for _, f := range gone {
		w.leave(f)
		// With this timestamp it does not delete what is put of the family from now on.
		b.Delete(w.table, rowKey(f.name), catalog.FamilySystem, emptyQualifier, now-1)
	}
	f = &family{name: name, bytes: n, at: now}
	w.enter(f)
	w.charge(f, s)
	return f, nil
}

// enter adds a family. mu must be held, as for all that follow.
func (w *Writer) enter(f *family) {
	w.known[f.name] = f
	w.bytes += f.bytes
	f.quiet, f.place = false, w.said.PushBack(f)
}

// leave removes a family.
func (w *Writer) leave(f *family) {
	delete(w.known, f.name)
	w.bytes -= f.bytes
	w.unlist(f)
	w.charge(f, nil)
}

func (w *Writer) unlist(f *family) {
	if f.quiet {
		w.quiet.Remove(f.place)
	} else {
		w.said.Remove(f.place)
	}
}

// charge makes a family that of a sender, nil: nobody's.
func (w *Writer) charge(f *family, s *sender) {
	if f.by != nil {
		f.by.families--
		f.by.bytes -= f.bytes
	}
	if f.by = s; s != nil {
		s.families++
		s.bytes += f.bytes
	}
}

// say notes that a sender has said a family that is stored. Who has no room for it cannot keep it from becoming quiet.
func (w *Writer) say(f *family, s *sender, now int64) {
	if f.by == nil {
		if s.families == senderFamilies || s.bytes+f.bytes > senderBytes {
			return
		}
		w.charge(f, s)
	}
	w.unlist(f)
	f.at, f.quiet, f.place = now, false, w.said.PushBack(f)
}

// age moves on what has become old.
func (w *Writer) age(now int64) {
	for e := w.said.Front(); e != nil; e = w.said.Front() {
		f := e.Value.(*family)
		if now-f.at <= quietAfter.Milliseconds() {
			break
		}
		w.said.Remove(e)
		f.quiet, f.place = true, w.quiet.PushBack(f)
		w.charge(f, nil)
	}
	if at := time.UnixMilli(now); at.Sub(w.since).Abs() > knownFor {
		w.since = at
		for _, f := range w.known {
			f.all = 0
		}
	}
}

// sender returns what is known of one.
func (w *Writer) sender(from string) *sender {
	s := w.senders[from]
	if s == nil {
		if len(w.senders) >= manySenders {
			for from, s := range w.senders {
				if s.families == 0 {
					delete(w.senders, from)
				}
			}
		}
		s = &sender{written: rate.NewLimiter(rate.Limit(maxBytes/knownFor.Seconds()), maxBytes)}
		w.senders[from] = s
	}
	return s
}

// Keep notes that changes are durable.
func (w *Writer) Keep(changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		if f := w.known[c.name]; f != nil {
			f.all = c.all
		}
	}
}

// hash is that of what is said of a family, never 0.
func (w *Writer) hash(m request.Metadata) uint64 {
	var h maphash.Hash
	h.SetSeed(w.seed)
	for _, text := range [][]byte{m.Help, m.Unit} {
		_, _ = h.Write(text)
		_ = h.WriteByte(0xff) // in no text
	}
	_, _ = h.WriteString(m.Type)
	return max(h.Sum64(), 1)
}
