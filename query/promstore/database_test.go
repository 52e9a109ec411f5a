package promstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/query/querytest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

var (
	_ storage.SampleAndChunkQueryable = (*promstore.Queryable)(nil)
	_ storage.AppendableV2            = promstore.Appendable{}
	_ storage.Storage                 = (*database)(nil)
	_ storage.ExemplarQueryable       = promstore.ExemplarQueryable{}
	_ promstore.ExemplarSource        = (*query.Querier)(nil)
	_ promstore.Querier               = (*query.Querier)(nil)
	_ promstore.Appender              = (*ingest.Appender)(nil)
)

// database is a store with the real write path and read path on it, as Prometheus's tests want one.
type database struct {
	*promstore.Queryable
	promstore.Appendable
	querier *query.Querier
	store   store.Store
	uids    *uid.Registry
}

func newDatabase(t testing.TB, st store.Store) *database {
	db := querytest.New(t, st, querytest.Options{})
	return &database{
		Queryable:  promstore.New(promstore.Config{Querier: db.Querier}),
		Appendable: promstore.Appendable{Appender: db.Appender},
		querier:    db.Querier, store: st, uids: db.UIDs,
	}
}

func (db *database) Appender(context.Context) storage.Appender {
	panic("nobody appends by the old interface")
}
func (db *database) StartTime() (int64, error) { return 0, nil }

func (db *database) Close() error {
	db.uids.Close()
	if err := db.store.Close(); !errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// stores are the ways to make an empty store.
var stores = map[string]func(testing.TB) store.Store{
	"memory": func(testing.TB) store.Store { return storetest.NewMem() },
	"pebble": func(t testing.TB) store.Store {
		st, err := pebble.Open(pebble.Config{Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return st
	},
	"hbase": hbaseStores(),
}

// sample is a sample of a series to be written.
type sample struct {
	t int64
	v float64
}

func (s sample) String() string { return fmt.Sprintf(" %d=%016x", s.t, math.Float64bits(s.v)) }

// histogramBits are the higher bits of a value that stands for a native histogram in the tests.
const histogramBits = 0x7ff8_4157 << 32

// histogramOf is the native histogram that a value stands for, integer or float; none for other values.
func histogramOf(v float64) (*histogram.Histogram, *histogram.FloatHistogram) {
	n := math.Float64bits(v) - histogramBits
	switch {
	case n >= 1<<32:
		return nil, nil
	case n%2 == 0:
		return tsdbutil.GenerateTestHistogram(int64(n)), nil
	}
	return nil, tsdbutil.GenerateTestFloatHistogram(int64(n))
}

// valueOf is the value that stands for a histogram that was read, an integer one as a float one; NaN if none does. A
// stale marker is one, whatever its form: the TSDB makes a histogram of that which follows histograms.
func valueOf(got *histogram.FloatHistogram) float64 {
	if value.IsStaleNaN(got.Sum) {
		return got.Sum
	}
	v := math.Float64frombits(histogramBits + uint64(got.ZeroCount) - 2)
	h, want := histogramOf(v)
	if h != nil {
		want = h.ToFloat(nil)
	}
	if got.Compact(0); want == nil || !got.Equals(want) {
		return math.NaN()
	}
	return v
}

// write appends samples of one series and commits them.
func write(t testing.TB, to storage.AppendableV2, ls labels.Labels, samples ...sample) {
	t.Helper()
	a := to.AppenderV2(context.Background())
	for _, s := range samples {
		v := s.v
		h, fh := histogramOf(v)
		if h != nil || fh != nil {
			v = 0
		}
		if _, err := a.Append(0, ls, 0, s.t, v, h, fh, storage.AppendV2Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
}

// texts reads a set to its end: each series with its samples as text, in the order in which they came. Like the engine,
// it takes all series first.
func texts(t testing.TB, set storage.SeriesSet) []string {
	t.Helper()
	var all []storage.Series
	for set.Next() {
		all = append(all, set.At())
	}
	if err := set.Err(); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	var it chunkenc.Iterator
	for _, s := range all {
		it = s.Iterator(it)
		out = append(out, s.Labels().String()+rest(t, it))
	}
	return out
}

// rest is what an iterator still has, as text.
func rest(t testing.TB, it chunkenc.Iterator) string {
	t.Helper()
	var b strings.Builder
	for kind := it.Next(); kind != chunkenc.ValNone; kind = it.Next() {
		var at int64
		var v float64
		if kind == chunkenc.ValFloat {
			at, v = it.At()
		} else {
			var h *histogram.FloatHistogram
			at, h = it.AtFloatHistogram(nil)
			v = valueOf(h)
		}
		if n := math.Float64bits(v) - histogramBits; at != it.AtT() || n < 1<<32 &&
			(n%2 == 0) != (kind == chunkenc.ValHistogram) {
			t.Fatalf("a sample of type %v at %d or %d: %x", kind, at, it.AtT(), math.Float64bits(v))
		}
		b.WriteString(sample{at, v}.String())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func equal(name, value string) *labels.Matcher {
	return labels.MustNewMatcher(labels.MatchEqual, name, value)
}
