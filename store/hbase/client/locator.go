package client

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// locator knows where the regions of tables are. A table is located as a whole, by one scan of hbase:meta, and stays so
// until somebody finds that it is wrong. However many find so at once, it is looked up once.
type locator struct {
	cfg  *Config
	reg  registry
	pool *pool
	meta atomic.Pointer[wire.ServerName] // of hbase:meta; nil: ask the registry

	mu     sync.Mutex // guards tables
	tables map[string]*located
}

// located is one table.
type located struct {
	table  string
	layout atomic.Pointer[layout]
	doubt  atomic.Pointer[layout] // a layout that is to be looked up again before it is used

	mu     sync.Mutex // guards flight
	flight *flight    // the look-up under way; nil when there is none
}

// flight is one look-up, which all who need it wait for.
type flight struct {
	done   chan struct{} // closed when layout and err are set
	layout *layout
	err    error
}

func newLocator(cfg *Config, reg registry, pool *pool) *locator {
	return &locator{cfg: cfg, reg: reg, pool: pool, tables: make(map[string]*located)}
}

func (l *locator) entry(table string) *located {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tables[table]
	if t == nil {
		t = &located{table: table}
		l.tables[table] = t
	}
	return t
}

// locate returns the table's layout: the one that is known, if it is newer than stale, or else one that is looked up
// now. stale is the layout that turned out to be wrong, nil when there was none.
func (l *locator) locate(ctx context.Context, table string, stale *layout) (*layout, error) {
	t := l.entry(table)
	if current := t.layout.Load(); current != nil && current != stale && current != t.doubt.Load() {
		return current, nil
	}
	t.mu.Lock()
	if current := t.layout.Load(); current != nil && current != stale && current != t.doubt.Load() {
		t.mu.Unlock()
		return current, nil
	}
	f := t.flight
	if f == nil {
		f = &flight{done: make(chan struct{})}
		t.flight = f
		if !l.pool.begin(func() { l.fly(t, f) }) {
			t.flight = nil
			t.mu.Unlock()
			return nil, ErrClosed
		}
	}
	t.mu.Unlock()
	select {
	case <-f.done:
		return f.layout, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// forget drops what is known of a table, so that the next who needs it looks it up.
func (l *locator) forget(table string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tables, table)
}

// doubt makes the next who needs a table look it up, if seen is what is known of it.
func (l *locator) doubt(seen *layout) { l.entry(seen.table).doubt.Store(seen) }

// fly looks a table up on behalf of all who wait, and hence not with the context of any of them. It tries once: who
// waits knows whether there is time for more.
func (l *locator) fly(t *located, f *flight) {
	ctx, cancel := context.WithTimeout(l.pool.life, l.cfg.RPCTimeout)
	defer cancel()
	old := t.layout.Load()
	f.layout, f.err = l.load(ctx, t.table, old)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flight = nil
	if f.err == nil {
		t.layout.Store(f.layout)
	}
	close(f.done)
}

// moved takes up a server's word that a region is elsewhere now, which saves a look-up.
func (l *locator) moved(seen *layout, name []byte, server wire.ServerName) {
	t := l.entry(seen.table)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.layout.Load() == seen {
		t.layout.Store(seen.moved(name, server))
		l.cfg.Observer.Moved(seen.table, 1)
	}
}

// load looks a table up in hbase:meta, and hbase:meta itself in the registry.
func (l *locator) load(ctx context.Context, table string, old *layout) (*layout, error) {
	if table == wire.MetaTable {
		return l.loadMeta(ctx, old)
	}
	var regions []*Region
	name := wire.ParseTableName(table)
	start, stop := wire.MetaTableRange(name)
	err := l.scanMeta(ctx, &wire.Scan{
		Start: start, Stop: stop, Columns: []wire.Column{{Family: wire.MetaFamily}},
	}, func(row metaRow) error {
		region, err := row.region()
		if err != nil {
			return err
		}
		// A region that was split stays in the table until its daughters need none of its files.
		if region.info.Table == name && region.info.ReplicaID == 0 && !region.info.Split && !region.info.Offline {
			region.Table = table
			regions = append(regions, region)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("locate table %s: %w", table, err)
	}
	if err := l.checkState(ctx, table); err != nil {
		return nil, err
	}
	if len(regions) == 0 {
		return nil, fmt.Errorf("locate table %s: %w", table, errNoRegions)
	}
	layout, moved := newLayout(table, regions, old, l.cfg.RegionRPCs)
	if moved > 0 {
		l.cfg.Logger.Info("table located", slog.String("table", table), slog.Int("regions", len(regions)),
			slog.Int("moved", moved))
		if old != nil {
			l.cfg.Observer.Moved(table, moved)
		}
	}
	return layout, nil
}

// checkState makes an error of a table that does not serve, and will not just by waiting. The regions of a table being
// disabled look like ones that move.
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
	if table == wire.MetaTable {
		return wire.TableEnabled, true, nil
	}
	err = l.scanMeta(ctx, &wire.Scan{
		Start: []byte(table), Stop: []byte(table), StopInclusive: true,
		Columns: []wire.Column{{Family: wire.MetaTableFamily, Qualifiers: [][]byte{[]byte(wire.MetaTableState)}}},
	}, func(row metaRow) error {
		found = true
		return state.Parse(row[wire.MetaTableState])
	})
	return state, found, err
}

// loadMeta asks the registry for the place of hbase:meta's only region.
func (l *locator) loadMeta(ctx context.Context, old *layout) (*layout, error) {
	server, err := l.reg.metaServer(ctx)
	if err != nil {
		return nil, err
	}
	l.meta.Store(&server)
	layout, moved := newLayout(wire.MetaTable, []*Region{{
		Table: wire.MetaTable, Name: []byte(wire.MetaRegionName), Server: server, addr: server.Addr(),
		info: wire.RegionInfo{ID: 1, Table: wire.ParseTableName(wire.MetaTable)},
	}}, old, l.cfg.RegionRPCs)
	if old != nil && moved > 0 {
		l.cfg.Observer.Moved(wire.MetaTable, moved)
	}
	return layout, nil
}
