package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Regions split, merge and reopen under writers and readers: nothing is lost, nothing comes twice.
func TestRegionsChangeUnderLoad(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "020000", "040000", "050000")
	const fixed, rows = 20_000, 60_000
	put(t, c, name, 0, fixed)
	if err := c.FlushTable(t.Context(), name); err != nil {
		t.Fatal(err)
	}

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var written, scans atomic.Int64
	for w := range 3 { // writers: each its share of the rows behind those that are fixed
		wg.Go(func() {
			for i := fixed + w; i < rows; {
				b, err := c.NewBatch(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				for range 500 {
					b.Put(key(i), "f", []byte("q"), int64(1000+i), fmt.Append(nil, i))
					if i += 3; i >= rows {
						break
					}
				}
				if err := b.Flush(); err != nil {
					t.Error(err)
					return
				}
				written.Add(500)
			}
		})
	}
	var readers sync.WaitGroup
	for _, reversed := range []bool{false, true} {
		readers.Go(func() {
			for ctx.Err() == nil {
				n := 0
				s := client.Scan{Table: name, Stop: key(fixed), Rows: 300, Reversed: reversed}
				for row, err := range c.Scan(t.Context(), s) {
					want := n
					if reversed {
						want = fixed - 1 - n
					}
					if err != nil || text(row) != wantRows(want, want+1)[0] {
						t.Errorf("row %d of a scan: got %s and error %v", n, text(row), err)
						return
					}
					n++
				}
				if n != fixed {
					t.Errorf("scan got %d rows, want %d", n, fixed)
					return
				}
				scans.Add(1)
			}
		})
	}
	readers.Go(func() {
		var keys [][]byte
		for i := 0; i < fixed; i += 10 {
			keys = append(keys, key(i))
		}
		for ctx.Err() == nil {
			n := 0
			for row, err := range c.Get(t.Context(), client.Get{Table: name, Rows: keys}) {
				if err != nil || string(row.Key) != string(keys[n]) {
					t.Errorf("get %d: got %s and error %v", n, text(row), err)
					return
				}
				n++
			}
			if n != len(keys) {
				t.Errorf("get got %d rows, want %d", n, len(keys))
				return
			}
		}
	})
	change(t, c, name, &scans)
	wg.Wait()
	stop()
	readers.Wait()
	assertRows(t, scan(t, c, client.Scan{Table: name}), wantRows(0, rows))
	t.Logf("%d scans while regions changed", scans.Load())
}

// change splits, moves and merges regions of a table with splits at 20,000, 40,000 and 50,000, and lets scans pass
// between. (Halves cannot be split or merged until their files are compacted.)
func change(t *testing.T, c *client.Client, name string, scans *atomic.Int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	regions := func(want int) []*client.Region {
		regions, err := c.Regions(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if len(regions) != want {
			t.Fatalf("got %d regions, want %d", len(regions), want)
		}
		return regions
	}
	for i, row := range []int{10_000, 30_000} {
		if err := c.Split(ctx, regions(4 + i)[2*i], key(row)); err != nil {
			t.Errorf("split: %v", err)
		}
		awaitScan(ctx, scans)
	}
	for _, r := range regions(6) {
		if err := c.Move(ctx, r, wire.ServerName{}); err != nil {
			t.Errorf("move: %v", err)
		}
	}
	awaitScan(ctx, scans)
	rs := regions(6)
	if err := c.Merge(ctx, rs[4], rs[5]); err != nil {
		t.Errorf("merge: %v", err)
	}
	awaitScan(ctx, scans)
	regions(5)
}

// awaitScan returns when a scan that began after the call, or nearly so, has ended.
func awaitScan(ctx context.Context, scans *atomic.Int64) {
	for before := scans.Load(); scans.Load() < before+2 && ctx.Err() == nil; {
		time.Sleep(5 * time.Millisecond)
	}
}

// A region is reopened and compacted under a scan, after its rows were written anew.
func TestScan_SeesAllRowsOfARegionThatIsReopenedAndCompacted(t *testing.T) {
	c := dial(t, nil)
	const rows, cells = 100, 3
	write := func(name, value string) {
		b, err := c.NewBatch(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows * cells {
			b.Put(key(i/cells), "f", fmt.Append(nil, i%cells), time.Now().UnixMilli(), []byte(value))
		}
		if err := errors.Join(b.Flush(), c.FlushTable(t.Context(), name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, reversed := range []bool{false, true} {
		name := table(t, c)
		write(name, "old")
		n, anew := 0, 0
		// Each response is cut within a row.
		for row, err := range c.Scan(t.Context(), client.Scan{Table: name, Reversed: reversed, Rows: 10,
			ResponseBytes: 500}) {
			if err != nil {
				t.Fatal(err)
			}
			want := key(n)
			if reversed {
				want = key(rows - 1 - n)
			}
			if string(row.Key) != string(want) || len(row.Cells) != cells {
				t.Fatalf("row %d: got %s, want %s with %d cells", n, text(row), want, cells)
			}
			for _, cell := range row.Cells {
				if string(cell.Value) != string(row.Cells[0].Value) {
					t.Errorf("row %d is of two moments: %s", n, text(row))
				}
			}
			if string(row.Cells[0].Value) == "new" {
				anew++
			}
			if n++; n == rows/2 {
				write(name, "new")
				reopenAndCompact(t, c, name)
			}
		}
		if n != rows || anew == 0 || anew == rows {
			t.Errorf("reversed %t: got %d rows, %d of them written anew, want %d, some of them", reversed, n, anew, rows)
		}
	}
}

// reopenAndCompact does both to a table of one region, and returns when both are done.
func reopenAndCompact(t *testing.T, c *client.Client, name string) {
	t.Helper()
	schema, err := c.Describe(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	schema.Families[0].Attributes = append(schema.Families[0].Attributes, wire.Attribute{Name: "BLOCKSIZE", Value: "8192"})
	regions, err := c.Regions(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.ModifyTable(t.Context(), schema), c.CompactTable(t.Context(), name, true)); err != nil {
		t.Fatal(err)
	}
	shared.Cluster(t).RegionServers()[0].AwaitLog(" of " + regions[0].Encoded() + " into ")
}

func TestScan_OutlivesItsLease(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c)
	put(t, c, name, 0, 100)
	var got []string
	for row, err := range c.Scan(t.Context(), client.Scan{Table: name, Rows: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 5 {
			time.Sleep(5 * time.Second) // the lease is of two
		}
		got = append(got, text(row))
	}
	assertRows(t, got, wantRows(0, 100))
}
