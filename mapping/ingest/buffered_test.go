package ingest_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/model/histogram"
	"pgregory.net/rapid"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// buffered turns buffered mode on, without flushes but those that the test makes.
func buffered(c *ingest.Config) {
	c.SingleProcess = true
	c.Buffer = ingest.Buffer{FlushInterval: time.Hour, MaxBytes: 1 << 30, Merge: true}
}

// all is what a query would find: what is held, then what is stored. The order of the two is that of a query.
func (db *database) all(t testing.TB) map[string]map[int64]float64 {
	t.Helper()
	held := map[string]map[uint32][]byte{}
	oldest := db.OldestBuffered()
	for row, err := range db.store.Scan(t.Context(), store.Scan{Table: "tsdb-meta"}) {
		if err != nil {
			t.Fatal(err)
		}
		rows := map[uint32][]byte{}
		db.Buffered(t.Context(), [][]byte{row.Key}, 0, math.MaxUint32, func(_ int, base uint32, points []byte) {
			if base < oldest {
				t.Errorf("points of hour %d are held, and %d was said to be the oldest", base, oldest)
			}
			rows[base] = append([]byte(nil), points...)
		})
		held[fmt.Sprintf("%x", row.Key)] = rows
	}
	out := read(t, db.store, db.settings.Schema)
	for key, rows := range held {
		for base, points := range rows {
			var d mapping.RowDecoder
			d.Reset(base)
			if err := d.AddPoints(points, math.MaxInt64); err != nil {
				t.Fatal(err)
			}
			var p mapping.Points
			d.AppendPoints(&p, 0, mapping.MaxTime)
			if out[key] == nil {
				out[key] = map[int64]float64{}
			}
			for i := range p.T {
				out[key][p.T[i]] = number(&p, i)
			}
		}
	}
	return out
}

// cellsOf counts the cells of a table.
func cellsOf(t testing.TB, st store.Store, table string) int {
	t.Helper()
	n := 0
	for row, err := range st.Scan(t.Context(), store.Scan{Table: table}) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(row.Cells)
	}
	return n
}

// Nothing that is held is older than promtsd says, and what is stored it does not name any more.
func TestOldestBuffered_FollowsWhatWaits(t *testing.T) {
	db := open(t, storetest.NewMem(), nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		hours []int64 // of which a sample comes
		flush bool
		want  uint32
	}{{nil, false, math.MaxUint32}, {[]int64{9, 5, 7}, false, 5 * 3600}, {nil, true, math.MaxUint32},
		{[]int64{8, 5}, false, 5 * 3600}} {
		for _, hour := range step.hours {
			db.append(t, raw("__name__", "m"), request.Sample{T: hour * mapping.HourMs, V: float64(i)})
		}
		if step.flush {
			if err := db.FlushAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := db.OldestBuffered(); got != step.want {
			t.Errorf("step %d: got %d, want %d", i, got, step.want)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Whatever is flushed, merged, lost by a kill and replayed, whatever repeats and contradicts itself: what is read is
// what was acknowledged, and of two samples at one instant the later.
func TestBuffered_KeepsWhatItAcknowledged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := storetest.NewMem()
		merge := rapid.Bool().Draw(rt, "merge")
		cacheSize := rapid.SampledFrom([]int{1, 10_000}).Draw(rt, "cache")
		change := func(c *ingest.Config) {
			buffered(c)
			c.Buffer.Merge, c.CacheSize = merge, cacheSize
		}
		db := open(t, st, nil, change)
		clock := db.clock.Load()
		start := func() {
			db.clock.Store(clock)
			if err := db.Start(t.Context()); err != nil {
				rt.Fatal(err)
			}
		}
		start()
		want := map[string]map[int64]float64{}
		names := []string{"a", "b", "c"}
		tsuids := map[string]string{}
		steps := rapid.IntRange(1, 30).Draw(rt, "steps")
		for range steps {
			clock += int64(rapid.IntRange(0, 5).Draw(rt, "ms"))
			db.clock.Store(clock)
			switch rapid.SampledFrom([]string{
				"append", "append", "append", "flush", "kill", "stop", "wait", "write-through", "step back", "take over",
			}).Draw(rt, "step") {
			case "append":
				var req request.Write
				type sent struct {
					name       string
					samples    []request.Sample
					histograms []request.Sample // by their sums; they count after the samples
				}
				var all []sent
				draw := func(least int) (samples []request.Sample) {
					for range rapid.IntRange(least, 4).Draw(rt, "samples") {
						at := clock - int64(rapid.IntRange(0, 12).Draw(rt, "back"))*900_000 + int64(rapid.IntRange(0, 2).Draw(rt, "ms"))
						samples = append(samples, sample(at, float64(rapid.IntRange(0, 2).Draw(rt, "v"))*1.1))
					}
					return samples
				}
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 3, rapid.ID).Draw(rt, "series") {
					s := sent{name: name, samples: draw(1)}
					add(&req, raw("__name__", "m", "s", s.name), s.samples...)
					if rapid.IntRange(0, 2).Draw(rt, "histograms") == 0 {
						s.histograms = draw(0)
					}
					for _, x := range s.histograms {
						addHistogram(t, &req, x.T, &histogram.Histogram{Sum: x.V})
					}
					all = append(all, s)
				}
				if rapid.Bool().Draw(rt, "by references") {
					byReferences(rt, &req)
				}
				got, err := db.Append(t.Context(), &req)
				if err != nil || got.Written != len(req.Samples) || got.Histograms != len(req.Histograms) {
					rt.Fatalf("append: %+v, %v", got, err)
				}
				for _, s := range all {
					if want[s.name] == nil {
						want[s.name] = map[int64]float64{}
					}
					for _, x := range s.samples {
						want[s.name][x.T] = x.V
					}
					for _, x := range s.histograms {
						want[s.name][x.T] = 100 + x.V
					}
				}
			case "flush":
				if err := db.FlushAll(t.Context()); err != nil {
					rt.Fatal(err)
				}
			case "kill":
				db.Abandon()
				db = open(t, st, nil, change)
				start()
			case "stop":
				if err := db.Close(t.Context()); err != nil {
					rt.Fatal(err)
				}
				if n := cellsOf(t, st, "promtsd-journal"); n > 0 {
					rt.Fatalf("%d entries are left in the journal after a stop", n)
				}
				db = open(t, st, nil, change)
				start()
			case "write-through": // the journal is replayed in the other mode, too
				db.Abandon()
				db = open(t, st, nil, func(c *ingest.Config) { c.SingleProcess = true })
				start()
				db.Abandon()
				db = open(t, st, nil, change)
				start()
			case "take over": // by another process, before a new one starts
				db.Abandon()
				other := open(t, st, nil, func(c *ingest.Config) { change(c); c.SingleProcess = false })
				other.clock.Store(clock)
				leases, err := journal.Leases(rt.Context(), st, catalog.DefaultTables())
				if err != nil {
					rt.Fatal(err)
				}
				for _, l := range leases {
					if err := other.TakeOver(rt.Context(), l, 7); err != nil {
						rt.Fatal(err)
					}
				}
				db = open(t, st, nil, change)
				start()
			case "step back":
				clock -= int64(rapid.IntRange(1, 40_000).Draw(rt, "back"))
				db.clock.Store(clock)
			case "wait":
				clock += int64(rapid.IntRange(1, 80).Draw(rt, "minutes")) * 60_000
				db.clock.Store(clock)
			}
			// TSUIDs are assigned in order of arrival, so they are learned by asking.
			got := db.all(t)
			if len(got) != len(want) {
				rt.Fatalf("got %d series, want %d", len(got), len(want))
			}
			for name := range want {
				if tsuids[name] == "" {
					tsuids[name] = tsuidOf(t, db, name)
				}
				have := got[tsuids[name]]
				if fmt.Sprint(have) != fmt.Sprint(want[name]) {
					rt.Fatalf("series %s: got %v, want %v", name, have, want[name])
				}
			}
		}
		if err := db.Close(t.Context()); err != nil {
			rt.Fatal(err)
		}
	})
}

// byReferences makes a request one of remote write 2.0, with its symbols in any order.
func byReferences(t *rapid.T, req *request.Write) {
	var texts []string
	for i := range req.Series {
		err := request.ParseLabels(req.Series[i].Labels, func(name, value []byte) error {
			texts = append(texts, string(name), string(value))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(texts)
	texts = rapid.Permutation(slices.Compact(texts)).Draw(t, "symbols")
	req.Symbols = [][]byte{{0}}
	for _, text := range texts {
		req.Symbols = append(req.Symbols, append([]byte{byte(len(text))}, text...))
	}
	for i := range req.Series {
		s := &req.Series[i]
		s.RefsFrom = len(req.Refs)
		_ = request.ParseLabels(s.Labels, func(name, value []byte) error {
			req.Refs = append(req.Refs, uint32(slices.Index(texts, string(name))+1),
				uint32(slices.Index(texts, string(value))+1))
			return nil
		})
		s.Labels, s.RefsTo = nil, len(req.Refs)
	}
}

// tsuidOf looks the TSUID of {__name__="m", s=name} up.
func tsuidOf(t testing.TB, db *database, name string) string {
	t.Helper()
	uids := storetest.Must(uid.New(uid.Config{
		Store: db.store, Table: "tsdb-uid", Schema: db.settings.Schema, Names: db.settings.Names,
	}))
	defer uids.Close()
	var id [3]mapping.UID
	for i, n := range []uid.Name{{Kind: mapping.Metric, Text: "m"}, {Kind: mapping.Tagk, Text: "s"},
		{Kind: mapping.Tagv, Text: name}} {
		got, err := uids.Assign(t.Context(), []uid.Name{n})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
		id[i] = got[0].UID
	}
	return fmt.Sprintf("%x", db.settings.Schema.AppendTSUID(nil, id[0], []mapping.Tag{{Key: id[1], Value: id[2]}}))
}

func TestBuffered_ManyPointsToACell(t *testing.T) {
	db := open(t, storetest.NewMem(), nil, buffered)
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	hour := int64(mapping.BaseTime(now)) * 1000
	for i := range int64(240) {
		db.clock.Store(hour + i*15_000)
		db.append(t, raw("__name__", "m"), sample(hour+i*15_000, float64(i)*0.5))
		if i%20 == 19 {
			if err := db.FlushAll(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := cellsOf(t, db.store, "tsdb"); got != 12 {
		t.Errorf("240 samples flushed every 20 are %d cells, want 12", got)
	}
	db.clock.Store(hour + mapping.HourMs)
	if err := db.FlushAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := cellsOf(t, db.store, "tsdb"); got != 1 {
		t.Errorf("after the hour there are %d cells, want 1", got)
	}
	for key, points := range db.all(t) {
		if len(points) != 240 {
			t.Errorf("%s has %d samples, want 240", key, len(points))
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The memory of what is held is given back when it is stored, also that of series which the cache has dropped.
func TestBuffered_CountsItsMemory(t *testing.T) {
	registry := prometheus.NewRegistry()
	db := open(t, storetest.NewMem(), nil, func(c *ingest.Config) {
		buffered(c)
		c.CacheSize, c.Registerer, c.Buffer.MaxBytes = 1, registry, 1<<20
	})
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := func() float64 {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "promtsd_ingest_buffered_bytes" {
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		t.Fatal("no metric promtsd_ingest_buffered_bytes")
		return 0
	}
	for round := range 3 {
		for i := range 500 {
			db.append(t, raw("__name__", "m", "round", fmt.Sprint(round), "i", fmt.Sprint(i)), sample(now-7200_000, 1),
				sample(now-3600_000, 2))
		}
		if got := held(); got < 1000*5 {
			t.Errorf("1000 samples are held in %v bytes", got)
		}
		if err := db.FlushAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The cache still knows some series, at least one of each of its parts, with memory for what comes next.
		if got := held(); got > 64*64*2 {
			t.Errorf("after a flush %v bytes are held", got)
		}
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// While the store refuses writes nothing is acknowledged and promtsd is not ready; what was acknowledged before stays.
func TestBuffered_AcknowledgesNothingThatTheStoreRefuses(t *testing.T) {
	st := &sick{Store: storetest.NewMem()}
	db := open(t, st, nil, func(c *ingest.Config) {
		buffered(c)
		c.Buffer.LeaseTTL = 40 * time.Millisecond
	})
	if err := db.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until := func(what string, ok func() bool) {
		for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("not within 30 s: %s", what)
			}
		}
	}
	labels := raw("__name__", "m")
	until("the first sample is taken", func() bool { return try(t, db, labels, sample(now, 1)) == nil })
	st.ill.Store(true)
	if err := try(t, db, labels, sample(now+1, 2)); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("append to a full disk: got %v, want ErrUnavailable", err)
	}
	if err := db.FlushAll(t.Context()); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("flush to a full disk: got %v, want ErrUnavailable", err)
	}
	until("it is not ready", func() bool { return errors.Is(db.Ready(), store.ErrUnavailable) })
	for _, points := range db.all(t) {
		if points[now] != 1 {
			t.Errorf("the acknowledged sample is gone: %v", points)
		}
	}
	st.ill.Store(false)
	until("it is ready again", func() bool { return db.Ready() == nil })
	until("samples are taken again", func() bool { return try(t, db, labels, sample(now+2, 3)) == nil })
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, points := range read(t, st, db.settings.Schema) {
		if points[now] != 1 || points[now+2] != 3 {
			t.Errorf("stored are %v, want 1 and 3", points)
		}
	}
}

// try sends one series, and returns the error that the sender would see.
func try(t testing.TB, db *database, labels []byte, samples ...request.Sample) error {
	t.Helper()
	var req request.Write
	add(&req, labels, samples...)
	_, err := db.Append(t.Context(), &req)
	return err
}
