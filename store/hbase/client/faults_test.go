package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// once makes a control that hits the n-th call of a method, from 1, with a fault.
func once(method string, n int, ft fault) func(string, []byte) fault {
	return func(m string, _ []byte) fault {
		if m == method {
			if n--; n == 0 {
				return ft
			}
		}
		return fault{}
	}
}

// fill writes n rows with two cells each, "q0" and "q1".
func fill(t *testing.T, c *client.Client, n int) {
	t.Helper()
	b, err := c.NewBatch(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		for q := range 2 {
			b.Put(key(i), "f", fmt.Appendf(nil, "q%d", q), 1, fmt.Append(nil, i))
		}
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
}

func filled(n int) (rows []string) {
	for i := range n {
		rows = append(rows, fmt.Sprintf("%s: f.q0@1=%d f.q1@1=%d", key(i), i, i))
	}
	return rows
}

func TestBatch_RepeatsWhatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		control func(string, []byte) fault
		change  func(f *fake) // after the table was located
		puts    int           // cells that the servers see
	}{
		"nothing fails":        {puts: 200},
		"answer lost":          {control: once("Multi", 1, fault{lose: true}), puts: 200 + 100},
		"answer never comes":   {control: once("Multi", 2, fault{hang: true}), puts: 200 + 100},
		"server is busy":       {control: once("Multi", 1, fault{exception: "RegionTooBusyException"}), puts: 200},
		"queue is full":        {control: once("Multi", 1, fault{exception: "CallQueueTooBigException"}), puts: 200},
		"unknown failure":      {control: once("Multi", 1, fault{exception: "SomeIOException"}), puts: 200},
		"request is too large": {control: once("Multi", 1, fault{exception: "exceptions.RequestTooBigException"}), puts: 200},
		"region moves":         {change: func(f *fake) { f.regions[0].server = 1 }, puts: 200},
		"region splits":        {change: func(f *fake) { f.split(0, string(key(10))) }, puts: 200},
		"regions merge": {change: func(f *fake) {
			f.regions = []fakeRegion{{id: 99, server: 1}}
		}, puts: 200},
		"servers remember moves of regions that merged since": {change: func(f *fake) {
			f.regions = []fakeRegion{{id: 99, server: 1}}
			f.circular = true
		}, puts: 200},
		"server dies": {change: func(f *fake) {
			go f.servers[1].stop()
			f.regions[1].server = 0
		}, puts: 200},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := startFake(t, 2, func(cfg *client.Config) {
				cfg.RPCTimeout = time.Second
				cfg.OperationTimeout = 30 * time.Second
			}, string(key(50)))
			if _, err := c.Regions(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			if test.control != nil {
				f.control = test.control
			}
			if test.change != nil {
				test.change(f)
			}
			f.mu.Unlock()
			fill(t, c, 100)
			assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(100))
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.puts != test.puts {
				t.Errorf("servers were sent %d cells, want %d", f.puts, test.puts)
			}
		})
	}
}

func TestBatch_WaitsForRegionsWithoutServer(t *testing.T) {
	f, c := startFake(t, 2, nil, string(key(50)))
	fill(t, c, 100)
	f.mu.Lock()
	f.split(0, string(key(20)))
	f.regions[0].server, f.regions[1].server = -1, -1
	f.mu.Unlock()
	time.AfterFunc(100*time.Millisecond, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.regions[0].server, f.regions[1].server = 1, 0
	})
	fill(t, c, 100)
	assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(100))
}

func TestBatch_EndsWithItsContext(t *testing.T) {
	f, c := startFake(t, 1, nil)
	f.mu.Lock()
	f.control = func(string, []byte) fault { return fault{exception: "RegionTooBusyException"} }
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	b, err := c.NewBatch(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	b.Put([]byte("row"), "f", nil, 1, nil)
	err = b.Flush()
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v", err)
	}
	if client.MayHaveApplied(err) {
		t.Errorf("the server refused all attempts, but the error says that it may have been applied: %v", err)
	}
	var e *client.Error
	if !errors.As(err, &e) || e.Attempts < 3 || e.Server == "" || e.Region == "" || e.Table != "t" {
		t.Errorf("got %+v", e)
	}
}

// A proxy takes connections while the server behind it restarts, and closes them again: that passes.
func TestConnectionsClosedAtOnce_AreUnavailable(t *testing.T) {
	const closed = 7
	f, c := startFake(t, 2, nil, string(key(50)))
	if _, err := c.Regions(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	f.servers[1].refuse.Store(closed)
	fill(t, c, 100)
	if left := f.servers[1].refuse.Load(); left >= 0 {
		t.Errorf("%d connections less were closed than should have been", left)
	}
	assertRows(t, scan(t, c, client.Scan{Table: "t"}), filled(100))
}

func TestConnectionsAlwaysClosedAtOnce_AreUnavailable(t *testing.T) {
	f, c := startFake(t, 2, func(cfg *client.Config) { cfg.OperationTimeout = time.Second }, string(key(50)))
	if _, err := c.Regions(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	f.servers[1].refuse.Store(1 << 40)
	_, err := c.Increment(t.Context(), client.Coord{Table: "t", Row: key(60), Family: "f"}, 1)
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v", err)
	}
}

// A server that is frozen answers nothing. A caller with a short deadline learns no more than that; but the next one
// asks where the region is by now, rather than wait for the same server.
func TestDeadline_MakesTheNextVerbLookUpTheTable(t *testing.T) {
	f, c := startFake(t, 1, nil)
	fill(t, c, 1)
	f.mu.Lock()
	before := f.lookups
	f.control = once(wire.MethodMulti, 1, fault{hang: true})
	f.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b, err := c.NewBatch(ctx, "t")
	if err != nil {
		t.Fatal(err)
	}
	b.Put([]byte("row"), "f", nil, 1, nil)
	if err := b.Flush(); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got error %v", err)
	}
	fill(t, c, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if again := f.lookups - before; again != before {
		t.Errorf("the table was looked up by %d scans after the deadline, and by %d at first", again, before)
	}
}

func TestTableDisabled_IsFoundOut(t *testing.T) {
	f, c := startFake(t, 1, nil)
	fill(t, c, 10)
	f.mu.Lock()
	f.state, f.regions[0].server = wire.TableDisabled, -1
	f.mu.Unlock()
	b, err := c.NewBatch(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	b.Put([]byte("row"), "f", nil, 1, nil)
	if err := b.Flush(); !errors.Is(err, client.ErrTableDisabled) {
		t.Errorf("got error %v", err)
	}
}

func TestClose_EndsVerbsUnderWay(t *testing.T) {
	f, c := startFake(t, 1, nil)
	called := make(chan struct{}, 10)
	f.mu.Lock()
	f.control = func(string, []byte) fault {
		called <- struct{}{}
		return fault{hang: true}
	}
	f.mu.Unlock()
	result := make(chan error)
	go func() {
		_, err := c.Increment(context.Background(), client.Coord{Table: "t", Row: []byte("r"), Family: "f"}, 1)
		result <- err
	}()
	<-called
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; !errors.Is(err, client.ErrClosed) || !client.MayHaveApplied(err) {
		t.Errorf("got error %v", err)
	}
}

func TestScan_GoesOnWhereItWas(t *testing.T) {
	sizes := []int{1, 2, 3, 5, 7, 1000}
	if testing.Short() {
		sizes = []int{3, 7, 1000} // the smaller ones wait the longest: they fail the most often
	}
	for _, perScan := range sizes {
		for name, test := range map[string]struct {
			ft     fault
			change func(f *fake)
		}{
			"answer lost":     {ft: fault{lose: true}},
			"scanner unknown": {ft: fault{exception: "UnknownScannerException"}},
			"scanner reset":   {ft: fault{exception: "exceptions.ScannerResetException"}},
			"lease over":      {ft: fault{exception: "regionserver.LeaseException"}},
			"region moves": {ft: fault{exception: "NotServingRegionException"}, change: func(f *fake) {
				for i := range f.regions {
					f.regions[i].server = 1 - f.regions[i].server
				}
			}},
			"region splits": {ft: fault{exception: "NotServingRegionException"}, change: func(f *fake) {
				f.split(len(f.regions)/2, string(key(21)))
			}},
		} {
			for _, reversed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, %d cells, reversed %t", name, perScan, reversed), func(t *testing.T) {
					f, c := startFake(t, 2, nil, string(key(10)), string(key(20)), string(key(22)))
					fill(t, c, 30)
					f.mu.Lock()
					f.perScan = perScan
					calls := 0
					f.control = func(method string, _ []byte) fault {
						if method != wire.MethodScan {
							return fault{}
						}
						if calls++; calls%5 != 3 {
							return fault{}
						}
						if test.change != nil && calls == 3 {
							test.change(f)
						}
						return test.ft
					}
					f.mu.Unlock()
					want := filled(30)
					if reversed {
						want = nil
						for _, row := range filled(30) {
							want = append([]string{row}, want...)
						}
					}
					assertRows(t, scan(t, c, client.Scan{Table: "t", Reversed: reversed}), want)
				})
			}
		}
	}
}

// A region reopens under a scan and is compacted, after its rows were written anew. Of their old cells nothing is left,
// so that a scanner with the read point of the one that was lost would miss them.
func TestScan_MissesNoRowThatIsWrittenAnewWhileItsRegionReopens(t *testing.T) {
	for _, perScan := range []int{2, 3, 5, 7} {
		for _, reversed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d cells, reversed %t", perScan, reversed), func(t *testing.T) {
				f, c := startFake(t, 1, nil)
				fill(t, c, 30)
				f.mu.Lock()
				f.perScan = perScan
				n := 0
				f.control = func(method string, _ []byte) fault {
					if n++; n != 4 {
						return fault{}
					}
					for i := range 30 {
						for q := range 2 {
							f.put(&wire.Cell{Row: key(i), Qualifier: fmt.Appendf(nil, "q%d", q), Value: fmt.Append(nil, i+100)})
						}
					}
					return fault{exception: "NotServingRegionException"}
				}
				f.mu.Unlock()
				anew := 0
				got := scan(t, c, client.Scan{Table: "t", Reversed: reversed})
				for i, row := range got {
					at := i
					if reversed {
						at = 29 - i
					}
					want := fmt.Sprintf("%s: f.q0@1=%d f.q1@1=%d", key(at), at+100, at+100)
					if row == want {
						anew++
					} else if row != filled(30)[at] {
						t.Errorf("row %d: got %q, want %q or as it was before", i, row, want)
					}
				}
				if len(got) != 30 || anew == 0 || anew == 30 {
					t.Errorf("got %d rows, %d of them written anew, want 30, some of them", len(got), anew)
				}
			})
		}
	}
}

// The row that a scanner was lost in is deleted before the next scanner comes: what had come of it is no row.
func TestScan_YieldsNoPartOfARowThatIsGone(t *testing.T) {
	for _, gone := range []int{1, 29} {
		t.Run(fmt.Sprint(gone), func(t *testing.T) {
			f, c := startFake(t, 1, nil, string(key(2)))
			fill(t, c, 30)
			f.mu.Lock()
			f.perScan = 1
			f.control = func(_ string, param []byte) fault {
				for _, s := range f.scanners {
					if row := f.rows[string(key(gone))]; row != nil && len(s.cells) == 1 && s.cells[0].row == string(key(gone)) {
						delete(f.rows, string(key(gone)))
						return fault{exception: "UnknownScannerException"}
					}
				}
				return fault{}
			}
			f.mu.Unlock()
			want := filled(30)
			want = append(want[:gone:gone], want[gone+1:]...)
			assertRows(t, scan(t, c, client.Scan{Table: "t"}), want)
		})
	}
}

func TestGet_RepeatsWhatFailed(t *testing.T) {
	for name, ft := range map[string]fault{
		"answer lost": {lose: true}, "not there": {exception: "NotServingRegionException"},
		"too large": {exception: "MultiActionResultTooLarge"},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := startFake(t, 2, nil, string(key(10)))
			fill(t, c, 30)
			f.mu.Lock()
			f.control = once("Multi", 2, ft)
			f.split(1, string(key(20)))
			f.mu.Unlock()
			var keys [][]byte
			for i := range 40 {
				keys = append(keys, key(i))
			}
			var got []string
			for row, err := range c.Get(t.Context(), client.Get{Table: "t", Rows: keys}) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, text(row))
			}
			assertRows(t, got, filled(30))
		})
	}
}

func TestIncrement_GivesNoNumberTwice(t *testing.T) {
	for name, ft := range map[string]fault{
		"answer lost": {lose: true}, "answer never comes": {hang: true},
		"region moves": {exception: "NotServingRegionException"},
	} {
		t.Run(name, func(t *testing.T) {
			f, c := startFake(t, 1, func(cfg *client.Config) { cfg.RPCTimeout = 100 * time.Millisecond })
			f.mu.Lock()
			f.control = once("Mutate", 3, ft)
			f.mu.Unlock()
			last := int64(0)
			for range 5 {
				got, err := c.Increment(t.Context(), client.Coord{Table: "t", Row: []byte("r"), Family: "f"}, 2)
				if got < last+2 || err != nil {
					t.Errorf("got %d after %d and error %v", got, last, err)
				}
				last = got
			}
		})
	}
}

func TestCheckAndPut_ReadsAgainWhenTheAnswerIsLost(t *testing.T) {
	check := checkOf("mine")
	lost := func(f *fake, then func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		f.control = func(method string, _ []byte) fault {
			if n++; method == wire.MethodMutate && n == 1 {
				return fault{lose: true}
			}
			then()
			return fault{}
		}
	}
	t.Run("it was done", func(t *testing.T) {
		f, c := startFake(t, 1, nil)
		lost(f, func() {})
		if done, err := c.CheckAndPut(t.Context(), check); !done || err != nil {
			t.Errorf("got %t and error %v", done, err)
		}
	})
	t.Run("somebody came after", func(t *testing.T) {
		f, c := startFake(t, 1, nil)
		lost(f, func() { f.rows["r"][""] = "other" })
		done, err := c.CheckAndPut(t.Context(), check)
		if done || err == nil || !client.MayHaveApplied(err) {
			t.Errorf("got %t and error %v", done, err)
		}
	})
	t.Run("it was not done", func(t *testing.T) {
		f, c := startFake(t, 1, nil)
		undone := false
		lost(f, func() {
			if !undone {
				undone = true
				delete(f.rows, "r")
			}
		})
		if done, err := c.CheckAndPut(t.Context(), check); !done || err != nil {
			t.Errorf("got %t and error %v", done, err)
		}
	})
}

func TestCheckAndPut_RemovalReadsAgainWhenTheAnswerIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		after   string // what the cell holds when it is read again
		removed bool
		fails   bool
	}{
		"it was done":         {"", true, false},
		"it was not done":     {"mine", true, false},
		"somebody came after": {"other", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, client := startFake(t, 1, nil)
			check := checkOf("mine")
			if done, err := client.CheckAndPut(t.Context(), check); !done || err != nil {
				t.Fatalf("got %t and error %v", done, err)
			}
			f.mu.Lock()
			lost := false
			f.control = func(method string, _ []byte) fault {
				if method == wire.MethodMutate && !lost {
					lost = true
					return fault{lose: true}
				}
				if lost && c.after != "" {
					f.rows["r"][""], c.after = c.after, ""
				}
				return fault{}
			}
			f.mu.Unlock()
			check.Expect, check.Value, check.Delete = check.Value, nil, true
			removed, err := client.CheckAndPut(t.Context(), check)
			if removed != c.removed || (err != nil) != c.fails {
				t.Errorf("got %t and error %v, want %t and an error: %t", removed, err, c.removed, c.fails)
			}
		})
	}
}

// checkOf puts a value where there is none.
func checkOf(value string) client.Check {
	return client.Check{Coord: client.Coord{Table: "t", Row: []byte("r"), Family: "f"}, Value: []byte(value)}
}
