package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index/feed"
	"github.com/promtsd/promtsd/mapping/index/postings"
	"github.com/promtsd/promtsd/store"
)

// MemoryConfig is what a Memory needs.
type MemoryConfig struct {
	Store    store.Store
	Settings catalog.Settings

	// MaxSeries bounds the series held, at 100 to 200 bytes each, and while they are read anew twice. 0: none.
	MaxSeries int
	// Refresh is how long a series that another process has added may be missed. 0: there is no other process.
	Refresh time.Duration

	Registerer prometheus.Registerer // may be nil
	Logger     *slog.Logger          // nil: discard
}

// Memory is the part of the index that is kept in memory: the series of the latest days, as many days as MaxSeries
// allows, found by metric and by tag without reading the store. It is filled by Run, from the newest day back, and
// answers for the days that it has; a Reader asks the store for others. Where there is no room for all series of a day,
// it leaves out the metrics that have most, and when it becomes full those of which series come: it answers what
// concerns none of these.
//
// It is exact. What this process adds, it must add by Apply, and finds from then on. What other processes add by their
// Apply is found Refresh later at most; when that cannot be promised, as the store does not answer, say, the Reader
// asks the store. It is safe for concurrent use.
type Memory struct {
	MemoryConfig
	feed *feed.Feed // nil: no other process writes to the store

	mu       sync.RWMutex // guards what follows, and the fields of what it points to
	serving  *loaded      // answers; may be nil
	building *loaded      // is being filled, and may be serving too; may be nil
	kept     int          // the day before which nothing is of interest

	overfull chan struct{} // has an entry when there was no room for a series
	lost     chan struct{} // has an entry when changes of other processes may have been missed
}

// loaded is the series that one Build has loaded, with those that came later.
type loaded struct {
	*postings.Set
	from   int  // the first day from which on all series are here; never while there is none
	spoilt bool // series are missing, and it is not known which
}

// never is after every Day.
const never = 1 << 16

// NewMemory returns a Memory, which holds nothing before Run. The error is that of registering its metrics.
func NewMemory(c MemoryConfig) (*Memory, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Memory{MemoryConfig: c, overfull: make(chan struct{}, 1), lost: make(chan struct{}, 1)}
	if c.Refresh > 0 {
		f := feed.Config{Store: c.Store, Table: c.Settings.Tables.System, Interval: c.Refresh, Logger: c.Logger, Lose: m.lose}
		if c.MaxSeries > 0 {
			f.Apply = m.addChanges
		}
		m.feed = feed.New(f)
	}
	if err := m.registerMetrics(c.Registerer); err != nil {
		return nil, err
	}
	return m, nil
}

const (
	// maxRowsBuilt bounds the rows that filling the memory reads: it goes on to no other day when it has read so many.
	maxRowsBuilt = 32 << 20

	// rebuildAfter is how long the memory waits at least before it is filled again after it became too small, and
	// rebuildTimes how many times as long as that took.
	rebuildAfter = time.Minute
	rebuildTimes = 20
)

// Run fills the memory, and keeps it in step with what others write, until ctx ends.
func (m *Memory) Run(ctx context.Context) {
	var wg sync.WaitGroup
	if m.feed != nil {
		wg.Go(func() { m.feed.Run(ctx) })
	}
	defer wg.Wait()
	for m.MaxSeries > 0 && ctx.Err() == nil {
		begin := time.Now()
		err := m.Build(ctx)
		wait := max(rebuildAfter, rebuildTimes*time.Since(begin))
		if err != nil && ctx.Err() == nil {
			m.Logger.Warn("series index not read into memory, so that queries read it from the store; trying again", "err", err)
			wait = 10 * time.Second
		} else if err == nil && m.told(begin) {
			select { // until there is reason to fill it anew
			case <-ctx.Done():
			case <-m.overfull:
				m.Logger.Warn(
					"the series index has become larger than --index.max-series: of metrics with new series it is read from the "+
						"store until the series of the latest days are read into memory again", "max", m.MaxSeries, "in", wait)
			case <-m.lost:
				wait = 0
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	<-ctx.Done()
}

// told logs what a Build has brought; false is nothing.
func (m *Memory) told(begin time.Time) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.serving == nil {
		m.Logger.Warn(
			"the series of the latest day are more than --index.max-series, in too many metrics: queries read the index from the "+
				"store", "max", m.MaxSeries)
		return false
	}
	attrs := []any{"series", m.serving.Len(), "took", time.Since(begin).Round(time.Millisecond)}
	if m.serving.from > 0 {
		attrs = append(attrs, "from", time.UnixMilli(int64(m.serving.from)*mapping.DayMs).UTC().Format(time.DateOnly))
	}
	if n := m.serving.LeftOut(); n > 0 {
		m.Logger.Warn("series index is in memory without the metrics that have most series: the latest day has more than "+
			"--index.max-series", append(attrs, "metrics_left_out", n, "max", m.MaxSeries)...)
		return true
	}
	m.Logger.Info("series index is in memory", attrs...)
	return true
}

// Build fills the memory anew from the store and returns when it holds what it can. From its first day on it answers
// for the days that it has; until then, and if nothing fits, what was there before does. There must be one Build at a
// time.
func (m *Memory) Build(ctx context.Context) error {
	fits, err := m.build(ctx, nil)
	if fits || err != nil {
		return err
	}
	largest, err := m.largest(ctx)
	if len(largest) == 0 || err != nil {
		return err
	}
	_, err = m.build(ctx, largest)
	return err
}

// build is Build without some metrics; fits says whether there was room.
func (m *Memory) build(ctx context.Context, without []mapping.UID) (fits bool, err error) {
	s := &loaded{Set: postings.New(m.Settings.Schema), from: never}
	for _, metric := range without {
		s.LeaveOut(metric)
	}
	m.mu.Lock()
	m.building = s
	select {
	case <-m.overfull:
	default:
	}
	m.mu.Unlock()
	err = m.fill(ctx, s)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.building = nil
	s.IgnoreBefore(s.from)
	return m.serving == s, err
}

// largest are the metrics with most series on the latest day, as many as have to be left out so that there is room for
// the others, and for some more; none if that is too many.
func (m *Memory) largest(ctx context.Context) ([]mapping.UID, error) {
	day, err := m.lastDay(ctx, never-1)
	if err != nil || day < 0 {
		return nil, err
	}
	series, all := make(map[mapping.UID]int), 0
	prefix := appendDay(nil, mapping.Day(day))
	scan := store.Scan{Table: m.Settings.Tables.System, Ranges: []store.Range{store.PrefixRange(prefix)}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return nil, fmt.Errorf("read series index: %w", err)
		}
		tsuid := row.Key[len(prefix):]
		if len(tsuid) < m.Settings.Schema.MetricWidth {
			continue
		}
		metric, _ := m.Settings.Schema.ParseUID(mapping.Metric, tsuid[:m.Settings.Schema.MetricWidth])
		series[metric]++
		if all++; len(series) > m.MaxSeries {
			return nil, nil
		}
	}
	metrics := slices.SortedFunc(maps.Keys(series), func(a,
		b mapping.UID) int {
		return cmp.Compare(series[b], series[a])
	})
	n := 0
	for ; n < len(metrics) && all > m.MaxSeries/4*3; n++ {
		all -= series[metrics[n]]
	}
	if n > postings.MaxLeftOut/2 {
		return nil, nil
	}
	return metrics[:n], nil
}

// fill reads day after day, from the latest back, until all is read or enough.
func (m *Memory) fill(ctx context.Context, s *loaded) error {
	if m.feed != nil && m.MaxSeries > 0 {
		// What others have added since the store was last looked at comes before the days are read.
		if err := m.feed.Read(ctx); err != nil {
			return err
		}
	}
	// Of the days before the latest so many are read as leave room for series to come.
	rows, room := 0, m.MaxSeries
	for next := never - 1; ; room = m.MaxSeries / 8 * 7 {
		day, err := m.lastDay(ctx, next)
		if err != nil {
			return fmt.Errorf("read series index: %w", err)
		}
		if done := m.reached(s, day+1, day < 0, next < never-1); done || rows > maxRowsBuilt {
			return nil
		}
		n, err := m.fillDay(ctx, s, mapping.Day(day), room)
		switch {
		case errors.Is(err, errFull):
			return nil
		case err != nil:
			return fmt.Errorf("read series index: %w", err)
		}
		rows += n
		if m.reached(s, day, day == 0, true) {
			return nil
		}
		next = day - 1
	}
}

var errFull = errors.New("more series than the memory may hold")

// reached notes that all is loaded from a day on, and serves with it. done says that it need not go on.
func (m *Memory) reached(s *loaded, from int, all, serve bool) (done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if all || from <= m.kept {
		from, done = 0, true
	}
	s.from = from
	if s.spoilt {
		return true
	}
	if serve || done {
		m.serving = s
	}
	return done
}

// lastDay is the last day, up to one, of which there are rows; -1 if there is none.
func (m *Memory) lastDay(ctx context.Context, upTo int) (day int, err error) {
	// There is no scan backwards: the day is found by halving, where the first row at or after a day tells which day it
	// is of. Most often it is the first that is looked at.
	day = -1
	for low, high, middle := 0, upTo, upTo; low <= high; middle = low + (high-low)/2 {
		first, err := m.firstDay(ctx, middle, high)
		if err != nil {
			return 0, err
		}
		if first >= 0 {
			day, low = first, first+1
		} else {
			high = middle - 1
		}
	}
	return day, nil
}

// firstDay is the first day of some that has rows, -1 if none has.
func (m *Memory) firstDay(ctx context.Context, first, last int) (day int, err error) {
	day = -1
	scan := store.Scan{Table: m.Settings.Tables.System, Limit: 1, Ranges: []store.Range{{
		Start: appendDay(nil, mapping.Day(first)), Stop: store.PrefixEnd(appendDay(nil, mapping.Day(last))),
	}}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return 0, err
		}
		day = int(parseDay(row.Key))
	}
	return day, nil
}

// fillDay reads the rows of one day, as long as the series are no more than max.
func (m *Memory) fillDay(ctx context.Context, s *loaded, day mapping.Day, max int) (rows int, err error) {
	const page = 512 // rows that are added under one lock
	var slab []byte
	var ends []int
	flush := func() (ok bool) {
		ok = s.AddAll(slab, ends, day, max)
		slab, ends = slab[:0], ends[:0]
		return ok
	}
	prefix := appendDay(nil, day)
	scan := store.Scan{Table: m.Settings.Tables.System, Ranges: []store.Range{store.PrefixRange(prefix)}}
	for row, err := range m.Store.Scan(ctx, scan) {
		if err != nil {
			return rows, err
		}
		rows++
		slab = append(slab, row.Key[len(prefix):]...)
		if ends = append(ends, len(slab)); len(ends) == page && !flush() {
			return rows, errFull
		}
	}
	if !flush() {
		return rows, errFull
	}
	return rows, nil
}

// Apply applies a batch to the store, with what other processes have to know of its index rows. When it returns nil the
// series of these are found by every Select that begins afterwards. The batch may come back with a row more.
func (m *Memory) Apply(ctx context.Context, b *store.Batch) error {
	rows := indexRows(b, m.Settings.Tables)
	if m.feed != nil && len(rows) > 0 {
		m.feed.Put(b, rows)
	}
	if err := m.Store.Apply(ctx, b); err != nil {
		return err
	}
	if len(rows) > 0 && m.MaxSeries > 0 {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, i := range rows {
			row := b.At(i).Row
			m.add(parseDay(row), row[dayRowPrefix:])
		}
	}
	return nil
}

// indexRows are the positions in a batch of rows that say that a series was active on a day.
func indexRows(b *store.Batch, tables catalog.Tables) (at []int) {
	for i := range b.Len() {
		m := b.At(i)
		if !m.Delete && len(m.Row) > dayRowPrefix && m.Row[0] == dayPrefix && m.Table == tables.System {
			at = append(at, i)
		}
	}
	return at
}

// addChanges takes in what another process has added.
func (m *Memory) addChanges(changes iter.Seq2[mapping.Day, []byte]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for day, tsuid := range changes {
		m.add(day, tsuid)
	}
}

// lose says that what is in memory may lack something.
func (m *Memory) lose() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serving = nil
	if m.building != nil {
		m.building.spoilt = true
	}
	select {
	case m.lost <- struct{}{}:
	default:
	}
}

// add takes in that a series was active on a day. mu must be held.
func (m *Memory) add(day mapping.Day, tsuid []byte) {
	for i, s := range []*loaded{m.serving, m.building} {
		if s == nil || s.spoilt || i > 0 && s == m.serving || s.Add(tsuid, day, m.MaxSeries) {
			continue
		}
		if metric, _, err := m.Settings.Schema.ParseTSUID(tsuid, nil); err != nil || !s.LeaveOut(metric) {
			s.spoilt = true
			if s == m.serving {
				m.serving = nil
			}
		}
		select {
		case m.overfull <- struct{}{}:
		default:
		}
	}
}

// Forget says that the days before one are not kept: there need be no row for them in the store.
func (m *Memory) Forget(before mapping.Day) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = max(m.kept, int(before))
}

// keptFrom is the first day, from one on, that is of interest.
func (m *Memory) keptFrom(first mapping.Day) mapping.Day {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return max(first, mapping.Day(min(m.kept, never-1)))
}

// covering returns a Set that has all series of the days from one on, but of metrics that it lacks, nil if there is none.
func (m *Memory) covering(first mapping.Day) *postings.Set {
	if m.feed != nil && !m.feed.Fresh() {
		return nil
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if s := m.serving; s != nil && s.from <= int(first) {
		return s.Set
	}
	return nil
}
