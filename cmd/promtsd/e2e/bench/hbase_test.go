package bench_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// flushInterval is how long promtsd buffers samples in BenchmarkHBaseModes. An hour of data is sent within seconds:
// with the default of 5m each row would be written as one cell, which live data never is.
const flushInterval = time.Second

// mode is a mode of the write path.
type mode struct {
	name     string
	series   int
	interval time.Duration
	// live paces the senders, so that samples of five minutes come within a flushInterval: time runs as many times
	// faster as the hold time is shorter than its default. All other senders are as fast as promtsd takes their samples.
	live bool
}

// BenchmarkHBaseModes sends an hour of series, scraped each 15 s, to promtsd on a standalone HBase: in write-through
// mode, in buffered mode, and in buffered mode at the pace at which cells become what they are with live data. Samples
// are acknowledged when HBase has them, in its memory and its log.
//
//	go test ./cmd/promtsd/e2e/bench -run '^$' -bench HBaseModes -benchtime 1x -timeout 1h
func BenchmarkHBaseModes(b *testing.B) {
	cluster := hbasetest.Standalone(b, hbasetest.Config{JVM: []string{"-Xmx2g", "-XX:TieredStopAtLevel=4"}})
	warm := newBenchLoad(b, remotetest.MessageV2, requestSamples, 60)
	mode{"warm-up", requestSamples, 0, false}.measure(b, cluster, warm) // Java compiles what is run often
	for _, r := range []mode{
		{"write-through", 10_000, 0, false},
		{"buffered", 10_000, flushInterval, false},
		{"buffered-live", requestSamples, flushInterval, true},
	} {
		load := newBenchLoad(b, remotetest.MessageV2, r.series, 240)
		b.Run(r.name, func(b *testing.B) {
			for range b.N {
				r.measure(b, cluster, load).report(b)
			}
		})
	}
}

// modeFigures are what a mode cost.
type modeFigures struct {
	samples, cells float64
	acknowledged   time.Duration // until the last answer
	stored         time.Duration // until promtsd had put all away, and ended
	promtsd, hbase time.Duration // CPU until both had nothing left to do
	peakRSS        int64
}

func (f modeFigures) report(b *testing.B) {
	b.ReportMetric(0, "ns/op") // of starts and pauses, mostly
	b.ReportMetric(f.samples/f.acknowledged.Seconds(), "samples/s")
	b.ReportMetric(f.samples/f.stored.Seconds(), "stored-samples/s")
	b.ReportMetric(f.cells/f.samples, "cells/sample")
	b.ReportMetric(f.samples/f.cells, "points/cell")
	b.ReportMetric(f.promtsd.Seconds()/f.samples*1e6, "promtsd-CPU-s/M")
	b.ReportMetric(f.hbase.Seconds()/f.samples*1e6, "hbase-CPU-s/M")
	b.ReportMetric(float64(f.peakRSS)/(1<<20), "peak-MiB")
}

// measure runs promtsd on tables of its own, sends the load, and ends it. All must be there afterwards.
func (r mode) measure(b *testing.B, cluster *hbasetest.Cluster, load benchLoad) (f modeFigures) {
	h := promtest.Tables{Cluster: cluster, Name: fmt.Sprintf("road-%s-%d", r.name, time.Now().UnixMilli())}
	initialise := promtest.PromtsdCommand(b, "init", "--store.url="+h.URL(), "--table.promtsd="+h.SystemTable(),
		"--table.data="+h.DataTable(), "--table.uid="+h.UIDTable(),
		"--table.meta="+h.MetaTable(), "--salt.width=1", "--salt.buckets=4")
	if out, err := initialise.CombinedOutput(); err != nil {
		b.Fatalf("promtsd init: %v\n%s", err, out)
	}
	p := promtest.StartPromtsd(b, promtest.PromtsdConfig{
		StoreURL: h.URL(), Args: []string{"--table.promtsd=" + h.SystemTable(), "--write.flush-interval=" + r.interval.String()},
	})
	groups, err := load.prepare()
	if err != nil {
		b.Fatal(err)
	}
	sources := groups.sources()
	region := cluster.RegionServers()[0]
	beforeHBase, before, began := region.CPU(), p.Usage(), time.Now()
	if r.live {
		for i := range sources {
			sources[i] = &paced{sources[i], began, 0}
		}
	}
	if _, err := load.send(b.Context(), p.URL(), sources); err != nil {
		b.Fatal(err)
	}
	f.acknowledged = time.Since(began)
	after := p.StopMeasured(benchPatience)
	f.stored = time.Since(began)
	awaitIdle(b, region)
	f.promtsd, f.hbase, f.peakRSS = after.CPU-before.CPU, region.CPU()-beforeHBase, after.PeakRSS
	f.samples, f.cells = float64(load.samples()), float64(countCells(b, h))
	p.Restart()
	load.check(b, p.URL())
	p.Stop()
	return f
}

// paced gives bodies of a group not before their time.
type paced struct {
	benchSource
	began time.Time
	given int
}

func (p *paced) next() ([]byte, error) {
	const scrapes = 5 * time.Minute / (scrapeMs * time.Millisecond) // that come within a flushInterval
	p.given++
	time.Sleep(time.Until(p.began.Add(time.Duration(p.given) * flushInterval / scrapes)))
	return p.benchSource.next()
}

// awaitIdle returns when a server of HBase has used little for two seconds, or has been busy for too long.
func awaitIdle(b *testing.B, server *hbasetest.Process) {
	const window = 2 * time.Second
	for deadline, before := time.Now().Add(time.Minute), server.CPU(); time.Now().Before(deadline); {
		time.Sleep(window)
		now := server.CPU()
		if now-before < window/10 {
			return
		}
		before = now
	}
	b.Logf("%s stays busy", server.Name())
}

// countCells counts the cells of the data table.
func countCells(b *testing.B, h promtest.Tables) (cells int) {
	st, err := hbase.Open(hbase.Config{
		Client: client.Config{ZooKeeper: []string{h.Cluster.ZK()}, ZNode: h.Cluster.ZNode()},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	for row, err := range st.Scan(b.Context(), store.Scan{Table: h.DataTable()}) {
		if err != nil {
			b.Fatal(err)
		}
		cells += len(row.Cells)
	}
	return cells
}
