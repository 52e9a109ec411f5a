package client_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// A region server is killed and another one frozen under writers and readers: all that was acknowledged is there.
func TestServersDieUnderLoad(t *testing.T) {
	cluster := hbasetest.Distributed(t, hbasetest.Config{
		RegionServers: 2,
		Site: map[string]string{
			"zookeeper.session.timeout": "4000",
			// By default the master waits a minute for the frozen server to write to hbase:meta.
			"hbase.rpc.timeout": "5000",
		},
	})
	c, err := client.New(client.Config{
		ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode(), RPCTimeout: 3 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	name := table(t, c, "005000", "010000", "015000")

	const writers = 3
	var stop atomic.Bool
	var acknowledged [writers]int
	var progress atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; !stop.Load(); {
				time.Sleep(20 * time.Millisecond) // what is written has to be read back in the end
				b, err := c.NewBatch(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				for range 200 {
					b.Put(key(i*7919%20_000), "f", fmt.Appendf(nil, "%06d", i), int64(1+i), fmt.Append(nil, i))
					i += writers
				}
				if err := b.Flush(); err != nil {
					t.Error(err)
					return
				}
				acknowledged[w] = i
				progress.Add(1)
			}
		})
	}
	wg.Go(func() {
		last := int64(0)
		for !stop.Load() {
			sum, err := c.Increment(t.Context(), client.Coord{Table: name, Row: []byte("n"), Family: "f"}, 1)
			if err != nil || sum <= last {
				t.Errorf("increment answered %d after %d, error %v", sum, last, err)
				return
			}
			last = sum
		}
	})
	began := time.Now()
	onwards := func() {
		from, asked := progress.Load(), time.Now()
		for progress.Load() < from+20 && !t.Failed() {
			time.Sleep(10 * time.Millisecond)
			if time.Since(asked) > 3*time.Minute {
				t.Errorf("the writers made no 20 batches in three minutes, but %d", progress.Load()-from)
			}
		}
		t.Logf("%5.1f s: %d batches", time.Since(began).Seconds(), progress.Load())
	}
	first, second := cluster.RegionServers()[0], cluster.RegionServers()[1]
	onwards()
	first.Kill()
	onwards()
	first.Restart()
	onwards()
	second.Pause()
	onwards()
	second.Resume()
	second.AwaitEnd() // it finds that it was declared dead
	onwards()
	stop.Store(true)
	wg.Wait()

	got := make(map[string]bool)
	for row, err := range c.Scan(t.Context(), client.Scan{Table: name}) {
		if err != nil {
			t.Fatal(err)
		}
		for _, cell := range row.Cells {
			got[string(cell.Value)] = true
		}
	}
	missing := 0
	for w, end := range acknowledged {
		for i := w; i < end; i += writers {
			if !got[fmt.Sprint(i)] {
				missing++
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d cells that were acknowledged are missing, of %d", missing, len(got))
	}
	t.Logf("%d cells written", len(got))
}
