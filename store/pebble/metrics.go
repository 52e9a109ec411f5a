package pebble

import (
	"strconv"

	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/promtsd/promtsd/store/metricset"
)

// register registers the numbers of the trees, and returns what takes them away again.
func register(s *Store, r prometheus.Registerer) (unregister func(), err error) {
	var set metricset.Set
	set.Add(newTreeCollector(s))
	return func() { set.Unregister(r) }, set.Register(r)
}

// treeMetric is one number of a tree.
type treeMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*lsm.Metrics) float64
}

// treeCollector reads the numbers of the trees, that of the data and that of the log tables, at each scrape.
type treeCollector struct {
	store       *Store
	numbers     []treeMetric
	levelFiles  *prometheus.Desc
	levelBytes  *prometheus.Desc
	fsync       *prometheus.Desc
	failed      *prometheus.Desc
	stalled     *prometheus.Desc
	writable    *prometheus.Desc
	corruptions *prometheus.Desc
}

func newTreeCollector(s *Store) *treeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("promtsd_pebble_"+name, help, labels, nil)
	}
	c := &treeCollector{
		store:       s,
		levelFiles:  desc("level_files", "Table files, by level.", "tree", "level"),
		levelBytes:  desc("level_bytes", "Bytes of table files, by level.", "tree", "level"),
		fsync:       desc("wal_fsync_duration_seconds", "Time to sync the write-ahead log.", "tree"),
		failed:      desc("failed", "1 if the store stopped taking writes until a restart."),
		stalled:     desc("write_stalled", "1 if writes wait for flushes or compactions, or are refused as flushes fail."),
		writable:    desc("writable", "1 if new data is taken: there is room on the disk, and it answers."),
		corruptions: desc("corruptions_total", "Corrupt blocks met in table files."),
	}
	counter := func(name, help string, value func(*lsm.Metrics) float64) {
		c.numbers = append(c.numbers, treeMetric{desc(name, help, "tree"), prometheus.CounterValue, value})
	}
	gauge := func(name, help string, value func(*lsm.Metrics) float64) {
		c.numbers = append(c.numbers, treeMetric{desc(name, help, "tree"), prometheus.GaugeValue, value})
	}
	counter("flushes_total", "Flushes of memtables.",
		func(m *lsm.Metrics) float64 { return float64(m.Flush.Count) })
	counter("compactions_total", "Compactions.",
		func(m *lsm.Metrics) float64 { return float64(m.Compact.Count) })
	counter("compactions_failed_total", "Compactions that met an error.",
		func(m *lsm.Metrics) float64 { return float64(m.Compact.FailedCount) })
	counter("compaction_seconds_total", "Time spent in compactions.",
		func(m *lsm.Metrics) float64 { return m.Compact.Duration.Seconds() })
	gauge("compaction_debt_bytes", "Estimate of the bytes that compactions have yet to move.",
		func(m *lsm.Metrics) float64 { return float64(m.Compact.EstimatedDebt) })
	counter("compaction_written_bytes_total", "Bytes of table files that compactions wrote.",
		func(m *lsm.Metrics) float64 { t := m.Total(); return float64(t.TableBytesCompacted) })
	counter("flush_written_bytes_total", "Bytes of table files that flushes wrote.",
		func(m *lsm.Metrics) float64 { return float64(m.Levels[0].TableBytesFlushed) })
	gauge("read_amplification", "Layers of table files that a read may have to look at.",
		func(m *lsm.Metrics) float64 { return float64(m.ReadAmp()) })
	gauge("disk_bytes", "Bytes that the store takes on disk.",
		func(m *lsm.Metrics) float64 { return float64(m.DiskSpaceUsage()) })
	gauge("memtable_bytes", "Bytes of the memtables.",
		func(m *lsm.Metrics) float64 { return float64(m.MemTable.Size) })
	gauge("wal_bytes", "Bytes of live data in the write-ahead log.",
		func(m *lsm.Metrics) float64 { return float64(m.WAL.Size) })
	counter("wal_written_bytes_total", "Bytes written to the write-ahead log.",
		func(m *lsm.Metrics) float64 { return float64(m.WAL.BytesWritten) })
	gauge("cache_bytes", "Bytes of the block cache in use.",
		func(m *lsm.Metrics) float64 { return float64(m.BlockCache.Size) })
	counter("cache_hits_total", "Blocks that were in the cache.",
		func(m *lsm.Metrics) float64 { return float64(m.BlockCache.Hits) })
	counter("cache_misses_total", "Blocks that were not in the cache.",
		func(m *lsm.Metrics) float64 { return float64(m.BlockCache.Misses) })
	counter("filter_hits_total", "Reads that a Bloom filter saved.",
		func(m *lsm.Metrics) float64 { return float64(m.Filter.Hits) })
	counter("filter_misses_total", "Reads that a Bloom filter let through.",
		func(m *lsm.Metrics) float64 { return float64(m.Filter.Misses) })
	return c
}

// Describe implements prometheus.Collector.
func (c *treeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, n := range c.numbers {
		ch <- n.desc
	}
	for _, d := range []*prometheus.Desc{c.levelFiles, c.levelBytes, c.fsync, c.failed, c.stalled, c.writable,
		c.corruptions} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A closed store has no metrics, and one that failed only says so, because
// its tree may be stuck.
func (c *treeCollector) Collect(ch chan<- prometheus.Metric) {
	if c.store.enter() != nil {
		return
	}
	defer c.store.calls.Done()
	failed, stalled, corruptions := c.store.health.gauges()
	ch <- prometheus.MustNewConstMetric(c.failed, prometheus.GaugeValue, truth(failed))
	ch <- prometheus.MustNewConstMetric(c.stalled, prometheus.GaugeValue, truth(stalled))
	ch <- prometheus.MustNewConstMetric(c.writable, prometheus.GaugeValue, truth(c.store.Writable() == nil))
	ch <- prometheus.MustNewConstMetric(c.corruptions, prometheus.CounterValue, float64(corruptions))
	if failed {
		return
	}
	for _, t := range c.store.trees() {
		c.collectTree(ch, t)
	}
}

func (c *treeCollector) collectTree(ch chan<- prometheus.Metric, t *tree) {
	m := t.db.Metrics()
	for _, n := range c.numbers {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, n.value(m), t.name)
	}
	for i, l := range m.Levels {
		level := strconv.Itoa(i)
		ch <- prometheus.MustNewConstMetric(c.levelFiles, prometheus.GaugeValue, float64(l.TablesCount), t.name, level)
		ch <- prometheus.MustNewConstMetric(c.levelBytes, prometheus.GaugeValue, float64(l.TablesSize), t.name, level)
	}
	if h := m.LogWriter.FsyncLatency; h != nil {
		c.collectFsync(ch, h, t.name)
	}
}

// collectFsync passes on the tree's histogram, which has no name and counts in nanoseconds.
func (c *treeCollector) collectFsync(ch chan<- prometheus.Metric, h prometheus.Histogram, tree string) {
	var read dto.Metric
	if err := h.Write(&read); err != nil {
		return
	}
	buckets := make(map[float64]uint64, len(read.GetHistogram().GetBucket()))
	for _, b := range read.GetHistogram().GetBucket() {
		buckets[b.GetUpperBound()/1e9] = b.GetCumulativeCount()
	}
	ch <- prometheus.MustNewConstHistogram(c.fsync, read.GetHistogram().GetSampleCount(),
		read.GetHistogram().GetSampleSum()/1e9, buckets, tree)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
