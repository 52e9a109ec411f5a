package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// locator knows where the regions of tables are, as far as somebody needed them: a region is looked up in hbase:meta by
// a row of it, together with those behind it.
//
// Those who need a row that is not known, or whose region has turned out to be wrong, wait for the table's next round.
// A round looks up what all who wait by then need, one scan at a time, and there is a pause between rounds, which grows
// while there is something that they do not find: however many writers find at once that a region has no server,
// hbase:meta is hardly busier.
type locator struct {
	cfg  *Config
	reg  registry
	pool *pool
	meta atomic.Pointer[wire.ServerName] // of hbase:meta; nil: ask the registry

	mu     sync.Mutex // guards tables
	tables map[string]*table
}

// table is what is known of one table.
type table struct {
	name string

	mu      sync.RWMutex // guards what follows
	regions regionMap
	wants   map[*want]struct{} // what the next round looks up
	running bool               // there is a goroutine that runs rounds until nobody wants anything
	next    time.Time          // no round before
	vain    time.Time          // since when rounds have not found something; zero: they have
}

// want is somebody's need of a region.
type want struct {
	row   []byte // in it; or else the region in which the rows below row end, as for regionMap.before
	below bool
	old   *Region // that was known

	done   chan struct{} // closed when what follows is set
	region *Region       // a hole where there is none
	err    error
}

// lookupRows is the number of rows of hbase:meta that a look-up asks for: the region that is needed, and neighbours.
const lookupRows = 200

func newLocator(cfg *Config, reg registry, pool *pool) *locator {
	return &locator{cfg: cfg, reg: reg, pool: pool, tables: make(map[string]*table)}
}

func (l *locator) table(name string) *table {
	name = wire.ParseTableName(name).String() // default:t is t
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[name]
	if t == nil {
		t = &table{name: name, wants: make(map[*want]struct{})}
		l.tables[name] = t
	}
	return t
}

// locate returns the region of a row, or with below the one in which the rows below row end, an empty row standing for
// the table's end. What is not known is looked up, once: the region may be a hole, or have no server.
func (l *locator) locate(ctx context.Context, name string, row []byte, below bool) (*Region, error) {
	t := l.table(name)
	if r := t.valid(row, below); r != nil {
		return r, nil
	}
	w, ok := l.want(t, row, below)
	if !ok {
		return nil, ErrClosed
	}
	select {
	case <-w.done:
		return w.region, w.err
	case <-ctx.Done():
		t.mu.Lock()
		delete(t.wants, w)
		t.mu.Unlock()
		return nil, ctx.Err()
	}
}

// valid returns the region that is known, nil where it is to be looked up.
func (t *table) valid(row []byte, below bool) *Region {
	t.mu.RLock()
	r := t.known(row, below)
	t.mu.RUnlock()
	if r == nil || r.invalid.Load() {
		return nil
	}
	if !r.used.Load() {
		r.used.Store(true)
	}
	return r
}

func (t *table) known(row []byte, below bool) *Region {
	if below {
		return t.regions.before(row)
	}
	return t.regions.find(row)
}

// want adds to what the next round looks up. It returns false when the client is closed.
func (l *locator) want(t *table, row []byte, below bool) (*want, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := &want{row: bytes.Clone(row), below: below, old: t.known(row, below), done: make(chan struct{})}
	if w.old != nil && !w.old.invalid.Load() { // a round has found it just now
		w.region = w.old
		close(w.done)
		return w, true
	}
	if !t.running {
		if !l.pool.begin(func() { l.run(t) }) {
			return nil, false
		}
		t.running = true
	}
	t.wants[w] = struct{}{}
	return w, true
}

// run runs rounds while somebody wants something.
func (l *locator) run(t *table) {
	for {
		t.mu.Lock()
		pause := time.Until(t.next)
		if pause <= 0 || l.pool.life.Err() != nil || len(t.wants) == 0 {
			wants := slices.Collect(maps.Keys(t.wants))
			clear(t.wants)
			t.running = len(wants) > 0
			t.mu.Unlock()
			if len(wants) == 0 {
				return
			}
			l.round(t, wants)
			continue
		}
		t.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-l.pool.life.Done():
		}
	}
}

// round looks up what is wanted.
func (l *locator) round(t *table, wants []*want) {
	began := time.Now()
	same, missing := true, false // whether all is where it was, or something nowhere
	var failed error
	fresh := make(map[*Region]bool) // found by this round
	for _, w := range wants {
		t.mu.RLock()
		r := t.known(w.row, w.below)
		t.mu.RUnlock()
		switch {
		case failed != nil:
			w.err = failed
		case r != nil && fresh[r]:
			w.region = r
		default:
			w.region, w.err = l.lookup(t, w, fresh)
			failed = w.err // the others would hardly do better
		}
		if w.err != nil || w.region.addr == "" {
			missing = true
		} else if w.old == nil || !w.old.is(w.region) || w.old.Server != w.region.Server {
			same = false
		}
		close(w.done)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case !missing && same:
		t.next = now.Add(samePause)
	case !missing:
		t.vain, t.next = time.Time{}, now.Add(minRoundPause)
	default:
		if t.vain.IsZero() || began.Sub(t.next) > calm {
			t.vain = began
		}
		t.next = now.Add(min(max(now.Sub(t.vain)/2, minRoundPause), maxRoundPause))
	}
}

// Pauses between two rounds of a table.
const (
	minRoundPause = 10 * time.Millisecond
	samePause     = 25 * time.Millisecond  // when all was where it was
	maxRoundPause = 500 * time.Millisecond // when something was nowhere: half of the time since that began, at most this
	// calm is for how long nobody must have wanted anything for it to have ended.
	calm = time.Second
)

// lookup looks up one region with its neighbours, on behalf of somebody who may be gone by now, and hence not with
// their context. It tries once: who waits knows whether there is time for more. It ends before the attempt of who waits
// for it, to tell what the matter was.
func (l *locator) lookup(t *table, w *want, fresh map[*Region]bool) (*Region, error) {
	ctx, cancel := context.WithTimeout(l.pool.life, l.cfg.RPCTimeout*3/4)
	defer cancel()
	found, whole, err := l.load(ctx, t.name, w)
	if err != nil {
		return nil, err
	}
	target := &Region{Table: t.name, Start: w.row}
	for _, r := range found {
		fresh[r] = true
		switch {
		case w.below && r.precedes(w.row), !w.below && r.holds(w.row):
			target = r
		case !w.below && target.isHole() && len(target.End) == 0 && bytes.Compare(r.Start, w.row) > 0:
			target.End = r.Start
		}
	}
	target.used.Store(true)
	if target.addr == "" {
		// The regions of a table being disabled look like ones that move.
		if err := l.checkState(ctx, t.name); err != nil {
			return nil, err
		}
	}
	t.mu.Lock()
	moved := t.regions.replace(found, whole)
	if len(t.regions.regions) > l.cfg.TableRegions {
		t.regions.evict(l.cfg.TableRegions)
	}
	t.mu.Unlock()
	if moved > 0 {
		l.cfg.Logger.Info("regions are elsewhere", slog.String("table", t.name), slog.Int("moved", moved))
		l.cfg.Observer.Moved(t.name, moved)
	}
	return target, nil
}

// load finds the region that is wanted and those behind it in hbase:meta, and hbase:meta itself in the registry. whole
// says that no more of the table follow.
func (l *locator) load(ctx context.Context, name string, w *want) (found []*Region, whole bool, err error) {
	if name == wire.MetaTable {
		r, err := l.loadMeta(ctx)
		return []*Region{r}, true, err
	}
	table := wire.ParseTableName(name)
	start, stop := wire.MetaTableRange(table)
	from, last := wire.MetaLookup(table, w.row)
	if w.below {
		from = wire.MetaBefore(table, w.row)
	}
	// The region whose start is the last one up to the row, and then all from there on, in one view.
	err = l.scanMeta(ctx, &wire.Scan{Start: from, Stop: last, StopInclusive: true, Reversed: true, Columns: metaColumns()},
		1,
		func(row metaRow) error {
			info, err := wire.ParseStoredRegionInfo(row[wire.MetaRegionInfo])
			start = info.Name()
			return err
		})
	if err == nil {
		found, whole, err = l.list(ctx, table, start, stop, lookupRows)
	}
	if err != nil {
		return nil, false, fmt.Errorf("locate table %s: %w", name, err)
	}
	return found, whole, nil
}

// list returns the regions of a table that hbase:meta has in a range of its rows, at most so many unless limit is 0.
// whole says that there are no more. With a limit, neighbours that come along end at a row that cannot be read: it is
// the matter of those who want that region.
func (l *locator) list(
	ctx context.Context, table wire.TableName, start, stop []byte, limit int,
) (found []*Region, whole bool, err error) {
	rows, cut := 0, false
	name := table.String()
	err = l.scanMeta(ctx, &wire.Scan{Start: start, Stop: stop, Columns: metaColumns()}, limit, func(row metaRow) error {
		rows++
		region, of, err := row.region()
		cut = cut || err != nil && limit > 0 && rows > 1
		switch {
		case cut:
		case err != nil:
			return err
		case of == table:
			region.Table = name
			found = append(found, region)
		}
		return nil
	})
	// By start key and id, not by the bytes of the names, in which a comma within a key would sort wrongly.
	slices.SortStableFunc(found, func(a, b *Region) int { return bytes.Compare(a.Start, b.Start) })
	return found, limit == 0 || rows < limit && !cut, err
}

// metaColumns are the columns of hbase:meta that say what a region is, and where.
func metaColumns() []wire.Column {
	column := wire.Column{Family: wire.MetaFamily}
	for _, q := range []string{wire.MetaRegionInfo, wire.MetaServer, wire.MetaServerStartCode, wire.MetaState} {
		column.Qualifiers = append(column.Qualifiers, []byte(q))
	}
	return []wire.Column{column}
}

// all returns all regions of a table, and keeps none.
func (l *locator) all(ctx context.Context, name string) ([]*Region, error) {
	table := wire.ParseTableName(name)
	if table.String() == wire.MetaTable {
		r, err := l.loadMeta(ctx)
		return []*Region{r}, err
	}
	start, stop := wire.MetaTableRange(table)
	found, _, err := l.list(ctx, table, start, stop, 0)
	if err != nil {
		return nil, fmt.Errorf("locate table %s: %w", name, err)
	}
	if len(found) == 0 {
		if err := l.checkState(ctx, name); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("locate table %s: %w", name, errNoRegions)
	}
	return found, nil
}

// forget drops what is known of a table, so that the next who needs it looks it up.
func (l *locator) forget(name string) {
	t := l.table(name)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.regions = regionMap{}
}

// moved takes up a server's word that a region is elsewhere now, which saves a look-up.
func (l *locator) moved(r *Region, server wire.ServerName) {
	t := l.table(r.Table)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.regions.put(r, r.at(server)) {
		l.cfg.Observer.Moved(r.Table, 1)
	}
}

// checkState makes an error of a table that does not serve, and will not just by waiting.
func (l *locator) checkState(ctx context.Context, table string) error {
	state, found, err := l.tableState(ctx, table)
	switch {
	case err != nil:
		return fmt.Errorf("read state of table %s: %w", table, err)
	case !found:
		return fmt.Errorf("locate table %s: %w", table, ErrNoTable)
	case state == wire.TableDisabled || state == wire.TableDisabling:
		return fmt.Errorf("locate table %s: %w", table, ErrTableDisabled)
	}
	return nil
}

// tableState reads the state of a table; a table without one does not exist.
func (l *locator) tableState(ctx context.Context, table string) (state wire.TableState, found bool, err error) {
	row := []byte(wire.ParseTableName(table).String())
	if string(row) == wire.MetaTable {
		return wire.TableEnabled, true, nil
	}
	err = l.scanMeta(ctx, &wire.Scan{
		Start: row, Stop: row, StopInclusive: true,
		Columns: []wire.Column{{Family: wire.MetaTableFamily, Qualifiers: [][]byte{[]byte(wire.MetaTableState)}}},
	}, 0, func(row metaRow) error {
		found = true
		return state.Parse(row[wire.MetaTableState])
	})
	return state, found, err
}

// loadMeta asks the registry for the place of hbase:meta's only region.
func (l *locator) loadMeta(ctx context.Context) (*Region, error) {
	server, err := l.reg.metaServer(ctx)
	if err != nil {
		return nil, err
	}
	l.meta.Store(&server)
	return &Region{
		Table: wire.MetaTable, Name: []byte(wire.MetaRegionName), Server: server, addr: server.Addr(), id: 1,
	}, nil
}
