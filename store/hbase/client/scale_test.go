package client_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Hundreds of writers find that a region has no server: hbase:meta is asked by one at a time, and now and then.
func TestUnassignedRegion_IsLookedUpNowAndThen(t *testing.T) {
	var scanning inFlight
	f, c := startFake(t, 2, func(cfg *client.Config) { cfg.Observer = &scanning }, string(key(50)))
	fill(t, c, 100)
	f.mu.Lock()
	f.regions[0].server = -1
	before := f.lookups
	f.mu.Unlock()
	const writers, silent = 500, 2 * time.Second
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			b, err := c.NewBatch(t.Context(), "t")
			if err != nil {
				t.Error(err)
				return
			}
			b.Put(key(i%50), "f", []byte("q0"), 1, fmt.Append(nil, i%50))
			if err := b.Flush(); err != nil {
				t.Error(err)
			}
		})
	}
	time.Sleep(silent)
	f.mu.Lock()
	scans := f.lookups - before
	f.regions[0].server = 0
	f.mu.Unlock()
	wg.Wait()
	// Each round is three scans at most, and in two seconds there are about fifteen.
	if scans < 4 || scans > 100 {
		t.Errorf("%d writers caused %d scans of hbase:meta in %v", writers, scans, silent)
	}
	if most := scanning.most.Load(); most != 1 {
		t.Errorf("%d scans of hbase:meta at the same time", most)
	}
	assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(100))
}

// inFlight observes how many scans are in flight at the same time.
type inFlight struct{ now, most atomic.Int64 }

func (o *inFlight) Started(method string, _ int) {
	if method == wire.MethodScan {
		if now := o.now.Add(1); now > o.most.Load() {
			o.most.Store(now)
		}
	}
}

func (o *inFlight) Finished(method string, _ time.Duration, _ int, _ error) {
	if method == wire.MethodScan {
		o.now.Add(-1)
	}
}

func (o *inFlight) Retry(string, string) {}
func (o *inFlight) Moved(string, int)    {}

// What is known of a large table is bounded, and what is needed is found all the same.
func TestLargeTable_IsKnownInPart(t *testing.T) {
	const regions = 1200
	var splits []string
	for i := 1; i < regions; i++ {
		splits = append(splits, string(key(i)))
	}
	f, c := startFake(t, 2, func(cfg *client.Config) { cfg.TableRegions = 300 }, splits...)
	fill(t, c, regions)
	f.mu.Lock()
	if f.lookups > regions/10 {
		t.Errorf("%d scans of hbase:meta for %d regions", f.lookups, regions)
	}
	f.mu.Unlock()
	assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(regions))
	var rows [][]byte
	for i := 0; i < regions; i += 7 {
		rows = append(rows, key(i))
	}
	n, want := 0, filled(regions)
	for row, err := range c.Get(t.Context(), client.Get{Table: "t", Rows: rows}) {
		if err != nil || text(row) != want[7*n] {
			t.Fatalf("got %s and error %v, want %s", text(row), err, want[7*n])
		}
		n++
	}
	if all, err := c.Regions(t.Context(), "t"); err != nil || len(all) != regions {
		t.Errorf("got %d regions and error %v", len(all), err)
	}
}

// One region of a large table is looked up with its neighbours, not with all of them.
func TestLookup_ReadsNeighboursOnly(t *testing.T) {
	var splits []string
	for i := 1; i < 2000; i++ {
		splits = append(splits, string(key(i)))
	}
	f, c := startFake(t, 1, nil, splits...)
	read := func(i int) {
		t.Helper()
		for _, err := range c.Get(t.Context(), client.Get{Table: "t", Rows: [][]byte{key(i)}}) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	read(700)
	f.mu.Lock()
	lookups, rows := f.lookups, f.metaRows
	f.mu.Unlock()
	if lookups != 2 || rows > 300 {
		t.Errorf("one region was looked up by %d scans with %d rows", lookups, rows)
	}
	for i := 700; i < 800; i++ {
		read(i)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lookups != lookups {
		t.Errorf("its neighbours were looked up by %d more scans", f.lookups-lookups)
	}
}

// A row of hbase:meta that cannot be read stops those who want its region, and not those who want the regions before
// and behind it.
func TestLookup_UnreadableRowStopsNoNeighbour(t *testing.T) {
	f, c := startFake(t, 1, func(cfg *client.Config) { cfg.OperationTimeout = 2 * time.Second }, "b", "c", "d", "e")
	f.mu.Lock()
	f.regions[2].damaged = true // from "c" on
	f.mu.Unlock()
	for _, row := range []string{"a", "b", "c", "d", "e"} {
		var failed error
		for _, err := range c.Get(t.Context(), client.Get{Table: "t", Rows: [][]byte{[]byte(row)}}) {
			failed = err
		}
		if damaged := row == "c"; (failed != nil) != damaged || damaged &&
			!strings.Contains(failed.Error(), `hbase:meta: row "t,c,`) {
			t.Errorf("row %s: got error %v", row, failed)
		}
	}
}

// Reads that take their time do not keep writes of the same region waiting.
func TestWrites_DoNotWaitForReads(t *testing.T) {
	f, c := startFake(t, 1, nil)
	fill(t, c, 100)
	release := make(chan struct{})
	var reads sync.WaitGroup
	t.Cleanup(func() {
		close(release)
		reads.Wait()
	})
	asked := make(chan struct{}, 1000)
	f.mu.Lock()
	f.stall = func(method string, param []byte) {
		actions := wire.NewMultiActions(param)
		if method == wire.MethodMulti && actions.Next() && actions.Mutation == nil {
			asked <- struct{}{}
			<-release
		}
	}
	f.mu.Unlock()
	for i := range 200 {
		reads.Go(func() {
			for _, err := range c.Get(context.Background(), client.Get{Table: "t", Rows: [][]byte{key(i % 100)}}) {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // less than a read has to be answered
	defer cancel()
	b, err := c.NewBatch(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	b.Put(key(1), "f", []byte("q0"), 1, []byte("1"))
	if err := b.Flush(); err != nil {
		t.Errorf("while reads wait: %v", err)
	}
}

func TestDefaultNamespace_NeedNotBeNamed(t *testing.T) {
	_, c := startFake(t, 1, nil)
	fill(t, c, 10)
	assertRows(t, scan(t, c, client.Scan{Table: "default:t"}), filled(10))
	if state, err := c.TableState(t.Context(), "default:t"); err != nil || state != wire.TableEnabled {
		t.Errorf("got state %v and error %v", state, err)
	}
}

// A server is frozen, and nobody waits for it until the deadline: all give up before, without saying why. The region
// goes elsewhere, and is found there.
func TestCallersThatGiveUp_LeaveTheFrozenServer(t *testing.T) {
	f, c := startFake(t, 2, nil)
	f.mu.Lock()
	f.regions[0].server = 1
	f.mu.Unlock()
	fill(t, c, 10)
	f.mu.Lock()
	f.frozen = map[int]bool{1: true}
	f.mu.Unlock()
	giveUp := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer time.AfterFunc(1500*time.Millisecond, cancel).Stop()
		_, err := c.Increment(ctx, client.Coord{Table: "t", Row: []byte("n"), Family: "f"}, 1)
		return err
	}
	if err := giveUp(); !errors.Is(err, context.Canceled) {
		t.Fatalf("got error %v", err)
	}
	f.mu.Lock()
	before := f.lookups
	f.regions[0].server = 0
	f.mu.Unlock()
	var err error
	for range 10 {
		if err = giveUp(); err == nil {
			break
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.lookups == before {
		t.Errorf("the region was looked up by %d scans, and the last error is %v", f.lookups-before, err)
	}
}

// A caller that gives up at once says nothing of the server.
func TestCallersThatGiveUpAtOnce_CauseNoLookups(t *testing.T) {
	f, c := startFake(t, 1, nil)
	fill(t, c, 10)
	f.mu.Lock()
	before := f.lookups
	called := make(chan struct{}, 100)
	f.control = func(string, []byte) fault {
		called <- struct{}{}
		return fault{hang: true}
	}
	f.mu.Unlock()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-called
			cancel()
		}()
		_, err := c.Increment(ctx, client.Coord{Table: "t", Row: []byte("n"), Family: "f"}, 1)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v", err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lookups > before+6 { // a slow machine may make one or two of them wait for long
		t.Errorf("callers that gave up caused %d scans of hbase:meta", f.lookups-before)
	}
}

// Connections that nobody uses are closed, and made anew when they are needed.
func TestIdleConnections_AreClosed(t *testing.T) {
	f, c := startFake(t, 2, func(cfg *client.Config) { cfg.IdleTimeout = 100 * time.Millisecond }, string(key(50)))
	for range 2 {
		fill(t, c, 100)
		assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(100))
		deadline := time.Now().Add(2 * time.Minute)
		for open := -1; open != 0; time.Sleep(10 * time.Millisecond) {
			open = 0
			for _, s := range f.servers {
				open += int(s.open.Load())
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d connections are open still", open)
			}
		}
	}
}

// BenchmarkLargeTable writes batches of ten rows to as many of 100,000 regions. first-ms is what the first write takes
// that a client makes, all-s meeting all regions once, and heap-B/region what the client keeps for each of them.
func BenchmarkLargeTable(b *testing.B) {
	const regions, touched = 100_000, 1000
	f, c := startFake(b, 1, nil)
	f.mu.Lock()
	f.regions = f.regions[:0]
	for i := range regions {
		r := fakeRegion{start: string(key(i)), end: string(key(i + 1)), id: uint64(1_700_000_000_000 + i)}
		if i == 0 {
			r.start = ""
		}
		if i == regions-1 {
			r.end = ""
		}
		f.regions = append(f.regions, r)
	}
	f.mu.Unlock()
	write := func(from, step, n int) {
		batch, err := c.NewBatch(b.Context(), "t")
		if err != nil {
			b.Fatal(err)
		}
		for i := range n {
			batch.Put(key((from+i*step)%regions), "f", []byte("q"), 1, []byte("v"))
		}
		if err := batch.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	heap := func() uint64 {
		f.mu.Lock()
		f.rows = make(map[string]map[string]string)
		f.mu.Unlock()
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	empty := heap()
	start := time.Now()
	write(0, 1, 1)
	first := time.Since(start)
	start = time.Now()
	for from := range 100 { // all are met once
		write(from*touched, 1, touched)
	}
	all, kept := time.Since(start), heap()-empty
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		next++
		write(next, regions/touched, 10)
	}
	b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	b.ReportMetric(all.Seconds(), "all-s")
	b.ReportMetric(float64(kept)/regions, "heap-B/region")
}
