package index

import (
	"context"
	"iter"
	"log/slog"
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

// covering returns a Set that has all series of the days from one on, but of metrics that it lacks, nil if there is
// none.
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
