// Package hbase is store.Store on HBase, over a client of its own (store/hbase/client) that speaks HBase's native RPC.
// Tables, families, rows, cells and timestamps are HBase's; the table names are those of the default namespace, or
// namespace:name.
package hbase

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase/client"
)

// Config is what a Store needs.
type Config struct {
	// Client says where the cluster is. Its Observer is the Store's own.
	Client client.Config
	// Compression lists codecs for tables that CreateTable makes, in HBase's names, of which the first one that the
	// cluster accepts is taken. Default: ZSTD, SNAPPY, LZ4, GZ, NONE.
	Compression []string
	Registerer  prometheus.Registerer // may be nil
	Logger      *slog.Logger
	Now         func() time.Time // the clock of mutations without a timestamp; default time.Now
}

// Store is a store.Store. It is safe for concurrent use.
type Store struct {
	client      *client.Client
	compression []string
	logger      *slog.Logger
	wall        func() time.Time
	clock       atomic.Int64 // the latest time given to mutations without one
	closed      atomic.Bool
}

// Open makes a Store. It does not connect yet: a cluster that is down, or is none, shows at the first call.
func Open(c Config) (*Store, error) {
	observer, err := newObserver(c.Registerer)
	if err != nil {
		return nil, err
	}
	c.Client.Observer = observer
	c.Client.Logger = c.Logger
	cl, err := client.New(c.Client)
	if err != nil {
		return nil, err
	}
	if len(c.Compression) == 0 {
		c.Compression = []string{"ZSTD", "SNAPPY", "LZ4", "GZ", "NONE"}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Store{client: cl, compression: c.Compression, logger: c.Logger, wall: c.Now}, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return store.ErrClosed
	}
	return s.client.Close()
}

// enter refuses calls after Close, and those whose context has ended.
func (s *Store) enter(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, context.Cause(ctx))
	}
	return nil
}

// now is the clock for mutations without a timestamp: it never gives one time twice, so that a put after a delete is
// newer than it.
func (s *Store) now() int64 {
	for {
		last := s.clock.Load()
		now := max(s.wall().UnixMilli(), last+1)
		if s.clock.CompareAndSwap(last, now) {
			return now
		}
	}
}

// bounded bounds the time of a call, all that it asks for of the client together.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.client.Timeout())
}

func wantedColumns(columns []store.Column) []client.Column {
	out := make([]client.Column, 0, len(columns))
	for _, c := range columns {
		out = append(out, client.Column{Family: c.Family, Qualifier: c.Qualifier})
	}
	return out
}

// classify gives an error of the client the class that store.Store promises. What the servers reject for another reason
// than its size counts as unavailable: rights are given, quotas raised and coprocessors mended, and answers that cannot
// be read are not those of what is stored.
func classify(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	class := store.ErrUnavailable
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, context.Cause(ctx), err)
	case errors.Is(err, client.ErrClosed):
		class = store.ErrClosed
	case errors.Is(err, client.ErrNoTable), errors.Is(err, client.ErrNoFamily):
		class = store.ErrNoTable
	case errors.Is(err, client.ErrTooLarge):
		class = store.ErrTooLarge
	case errors.Is(err, client.ErrInvalid):
		class = store.ErrInvalid
	}
	return fmt.Errorf("%w: %w", class, err)
}

// seq runs a reading verb and yields its error, if it has one, at the end.
func seq(run func(yield func(store.Row) bool) error) iter.Seq2[store.Row, error] {
	return func(yield func(store.Row, error) bool) {
		if err := run(func(row store.Row) bool { return yield(row, nil) }); err != nil {
			yield(store.Row{}, err)
		}
	}
}
