package query_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/pack"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
	"github.com/promtsd/promtsd/store/storetest"
)

const (
	benchStep = 15_000 // ms between samples: 240 an hour
	benchDay  = 20_000 // the day on which data begin
)

// bench is a store with data, and a querier on it.
type bench struct {
	store    store.Store
	settings catalog.Settings
	uids     *uid.Registry
	memory   *index.Memory
	cell     [64]struct{ qualifier, value []byte } // hours of 240 samples
	batch    store.Batch

	// Of a store in another process:
	compact func()               // is called when all is written
	used    func() time.Duration // time of all processors that have to do with reading
	warmUp  time.Duration        // before what is measured: it becomes faster at first
}

// newBench is one on the embedded store.
func newBench(b *testing.B) *bench {
	b.Helper()
	st, err := pebble.Open(pebble.Config{
		Dir: "db", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler), NoSync: true, CacheBytes: 1 << 30,
		Packing: pebble.Packing{Pack: pack.Append, Unpack: pack.Expand},
	})
	if err != nil {
		b.Fatal(err)
	}
	return newBenchOn(b, st, nil)
}

// newBenchOn is one on an empty store, which it closes, with the settings that are asked for.
func newBenchOn(b testing.TB, st store.Store, asked map[string]string) *bench {
	b.Helper()
	b.Cleanup(func() { st.Close() })
	f := &bench{store: st, compact: func() {}, used: processorTime}
	var err error
	if f.settings, _, err = catalog.Init(b.Context(), st, "promtsd", asked); err != nil {
		b.Fatal(err)
	}
	f.uids = storetest.Must(uid.New(uid.Config{
		Store: st, Table: f.settings.Tables.UID, Schema: f.settings.Schema, Names: f.settings.Names,
	}))
	b.Cleanup(f.uids.Close)
	f.memory = storetest.Must(index.NewMemory(index.MemoryConfig{Store: st, Settings: f.settings, MaxSeries: 1 << 20}))
	for i := range f.cell {
		var points []byte
		for n := range uint32(mapping.HourMs / benchStep) {
			points = mapping.AppendPoint(points, n*benchStep, float64(n*uint32(i+7)*13%1000))
		}
		f.cell[i].qualifier, f.cell[i].value = mapping.AppendCell(nil, nil, points)
	}
	return f
}

// write writes one cell for each of some hours of a series, from a day on.
func (f *bench) write(b testing.TB, ls labels.Labels, day mapping.Day, hours int) {
	tsuid := f.tsuid(b, ls)
	schema, w := f.settings.Schema, index.Writer{Tables: f.settings.Tables}
	first := uint32(day) * 86400
	row := schema.AppendRowKey(nil, tsuid, first)
	w.PutSeries(&f.batch, tsuid, 1)
	for h := range hours {
		if h%24 == 0 {
			w.PutDay(&f.batch, tsuid, day+mapping.Day(h/24), 1, nil)
		}
		schema.SetBaseTime(row, first+uint32(h)*3600)
		c := f.cell[(h+len(tsuid)+int(tsuid[len(tsuid)-1]))%len(f.cell)]
		f.batch.Put(f.settings.Tables.Data, row, catalog.FamilyData, c.qualifier, 1, c.value)
	}
	if f.batch.Size() > 8<<20 {
		f.flush(b)
	}
}

func (f *bench) flush(b testing.TB) {
	if err := f.store.Apply(b.Context(), &f.batch); err != nil {
		b.Fatal(err)
	}
	f.batch.Reset()
}

// assign gives the names of many series UIDs, which takes little longer than for one.
func (f *bench) assign(b testing.TB, series []labels.Labels) {
	var all []uid.Name
	seen := map[uid.Name]bool{}
	for _, ls := range series {
		for _, n := range names(ls) {
			if !seen[n] {
				all, seen[n] = append(all, n), true
			}
		}
	}
	if _, err := f.uids.Assign(b.Context(), all); err != nil {
		b.Fatal(err)
	}
}

func (f *bench) tsuid(b testing.TB, ls labels.Labels) []byte {
	results, err := f.uids.Assign(b.Context(), names(ls))
	if err != nil {
		b.Fatal(err)
	}
	var tags []mapping.Tag
	for i := 1; i < len(results); i += 2 {
		tags = append(tags, mapping.Tag{Key: results[i].UID, Value: results[i+1].UID})
	}
	f.settings.Schema.SortTags(tags)
	return f.settings.Schema.AppendTSUID(nil, results[0].UID, tags)
}

// names are the metric name, and then each label's name and value.
func names(ls labels.Labels) []uid.Name {
	names := []uid.Name{{Kind: mapping.Metric, Text: ls.Get("__name__")}}
	ls.Range(func(l labels.Label) {
		if l.Name != "__name__" {
			names = append(names, uid.Name{Kind: mapping.Tagk, Text: l.Name}, uid.Name{Kind: mapping.Tagv, Text: l.Value})
		}
	})
	return names
}

// querier returns a querier with the memory part of the index, or without it.
func (f *bench) querier(b testing.TB, memory bool, change func(*query.Config)) *query.Querier {
	f.flush(b)
	c := index.Config{Store: f.store, Settings: f.settings, UIDs: f.uids}
	if memory {
		c.Memory = f.memory
		if err := f.memory.Build(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	config := query.Config{
		Store: f.store, Settings: f.settings, Logger: slog.New(slog.DiscardHandler), Index: index.NewReader(c),
	}
	if change != nil {
		change(&config)
	}
	return storetest.Must(query.New(config))
}

// run measures a query of some hours from the first day on, that finds so many series.
func (f *bench) run(b *testing.B, q *query.Querier, day mapping.Day, hours, series int, ms ...*labels.Matcher) {
	b.Helper()
	from := int64(day) * 24 * mapping.HourMs
	samples, found := 0, 0
	b.ReportAllocs()
	begin := f.used()
	for b.Loop() {
		samples, found = 0, 0
		set, err := q.Select(context.Background(), from, from+int64(hours)*mapping.HourMs-1, false, ms)
		if err != nil {
			b.Fatal(err)
		}
		for set.Next() {
			found++
			for p := set.Points(); p != nil; p = set.Points() {
				samples += p.Len()
			}
		}
		if err := set.Err(); err != nil {
			b.Fatal(err)
		}
		set.Close()
	}
	if found != series || samples != series*hours*(mapping.HourMs/benchStep) {
		b.Fatalf("found %d series with %d samples, want %d series", found, samples, series)
	}
	cpu := f.used() - begin
	b.ReportMetric(float64(samples)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Msamples/s")
	b.ReportMetric(float64(samples)*float64(b.N)/cpu.Seconds()/1e6, "Msamples/cpu-s")
	b.ReportMetric(cpu.Seconds()*1e3/float64(b.N), "cpu-ms/op")
}

// processorTime is what the process has used of the processors, in which a machine with other work can be compared.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err) // it has no other reason than a wrong address
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func matcher(kind labels.MatchType, name, value string) *labels.Matcher {
	return labels.MustNewMatcher(kind, name, value)
}

// benchLabels are those of one of the metric's series: ten jobs, each instance in one of them.
func benchLabels(metric string, i int) labels.Labels {
	return labels.FromStrings("__name__", metric, "instance", fmt.Sprintf("host-%05d:9100", i),
		"job", fmt.Sprintf("job-%d", i%10), "zone", fmt.Sprintf("z%d", i%3), "env", "prod")
}

func BenchmarkSelect(b *testing.B) {
	const series = 10_000
	f := newBench(b)
	for i := range series {
		f.write(b, benchLabels("requests_total", i), benchDay, 24)
		f.write(b, benchLabels("other", i), benchDay, 1)
	}
	name := matcher(labels.MatchEqual, "__name__", "requests_total")
	equal, re, not := labels.MatchEqual, labels.MatchRegexp, labels.MatchNotEqual
	for _, c := range []struct {
		name          string
		hours, series int
		ms            []*labels.Matcher
	}{
		{"1of10000_24h", 24, 1, []*labels.Matcher{name, matcher(equal, "instance", "host-01234:9100")}},
		{"100of10000_24h", 24, 100, []*labels.Matcher{name, matcher(re, "instance", "host-012..:9100")}},
		{"1000of10000_1h", 1, 1000, []*labels.Matcher{name, matcher(equal, "job", "job-3")}},
		{"metric_1h", 1, series, []*labels.Matcher{name}},
		{"nameless_1h", 1, 2 * series / 10, []*labels.Matcher{matcher(equal, "job", "job-3")}},
		{"regexp_1h", 1, series / 5, []*labels.Matcher{name, matcher(re, "job", "job-(3|4)")}},
		{"not_1h", 1, series / 10 * 9, []*labels.Matcher{name, matcher(not, "job", "job-3")}},
		{"metric_24h", 24, series, []*labels.Matcher{name}},
	} {
		for _, memory := range []bool{true, false} {
			for _, plan := range []string{"cost", "get", "scan"} {
				b.Run(fmt.Sprintf("%s/memory=%v/%s", c.name, memory, plan), func(b *testing.B) {
					q := f.querier(b, memory, nil)
					q.ForceMethod(plan)
					f.run(b, q, benchDay, c.hours, c.series, c.ms...)
				})
			}
		}
	}
}

// A year of one series needs no more memory than a day of many.
func BenchmarkSelectYear(b *testing.B) {
	f := newBench(b)
	f.write(b, benchLabels("m", 0), benchDay, 365*24)
	for i := range 1000 {
		f.write(b, benchLabels("m", 1+i), benchDay+mapping.Day(i%365), 24)
	}
	for _, memory := range []bool{true, false} {
		b.Run(fmt.Sprintf("memory=%v", memory), func(b *testing.B) {
			q := f.querier(b, memory, nil)
			f.run(b, q, benchDay, 365*24, 1, matcher(labels.MatchEqual, "instance", "host-00000:9100"))
		})
	}
}

// Of 100,000 series nine of ten ended long ago.
func BenchmarkSelectChurn(b *testing.B) {
	f := newBench(b)
	const series, days = 100_000, 30
	for i := range series {
		day := mapping.Day(benchDay + days)
		if i%10 != 0 {
			day = mapping.Day(benchDay + i%days)
		}
		f.write(b, benchLabels("m", i), day, 1)
	}
	for _, memory := range []bool{true, false} {
		q := f.querier(b, memory, nil)
		if memory {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			m := storetest.Must(index.NewMemory(index.MemoryConfig{Store: f.store, Settings: f.settings, MaxSeries: 1 << 20}))
			if err := m.Build(b.Context()); err != nil {
				b.Fatal(err)
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			b.Logf("the index of %d series takes %d bytes for each", series, (int(after.HeapAlloc)-int(before.HeapAlloc))/series)
			runtime.KeepAlive(m)
		}
		b.Run(fmt.Sprintf("metric/memory=%v", memory), func(b *testing.B) {
			f.run(b, q, benchDay+days, 1, series/10, matcher(labels.MatchEqual, "__name__", "m"))
		})
		b.Run(fmt.Sprintf("one/memory=%v", memory), func(b *testing.B) {
			f.run(b, q, benchDay+days, 1, 1, matcher(labels.MatchEqual, "__name__", "m"),
				matcher(labels.MatchEqual, "instance", "host-01230:9100"))
		})
	}
}

// Of 400 days each has its own series.
func BenchmarkSelectYearOfChurn(b *testing.B) {
	f := newBench(b)
	const days, perDay = 400, 10
	for i := range days * perDay {
		f.write(b, benchLabels("m", i), benchDay+mapping.Day(i/perDay), 1)
	}
	for _, memory := range []bool{true, false} {
		b.Run(fmt.Sprintf("memory=%v", memory), func(b *testing.B) {
			q := f.querier(b, memory, nil)
			b.ReportAllocs()
			for b.Loop() {
				set, err := q.Select(b.Context(), benchDay*24*mapping.HourMs, (benchDay+days)*24*mapping.HourMs-1, false,
					[]*labels.Matcher{matcher(labels.MatchEqual, "__name__", "m")})
				if err != nil {
					b.Fatal(err)
				}
				found := 0
				for set.Next() {
					found++
				}
				if set.Close(); found != days*perDay {
					b.Fatalf("found %d series", found)
				}
			}
		})
	}
}

// BenchmarkCosts measures what EmbeddedCosts says.
func BenchmarkCosts(b *testing.B) { newBench(b).costs(b) }

// costs measures what Costs are about: the rows of an hour got by their keys, scanned, and passed over.
func (f *bench) costs(b *testing.B) {
	const series = 10_000
	var named []labels.Labels
	for i := range series {
		named = append(named, benchLabels("m", i))
	}
	f.assign(b, named)
	var keys [][]byte
	for _, ls := range named {
		f.write(b, ls, benchDay, 2)
		keys = append(keys, f.settings.Schema.AppendRowKey(nil, f.tsuid(b, ls), benchDay*86400))
	}
	slices.SortFunc(keys, bytes.Compare)
	f.flush(b)
	f.compact()
	data, columns := f.settings.Tables.Data, []store.Column{{Family: catalog.FamilyData}}
	all := []store.Range{{Start: keys[0], Stop: append(slices.Clone(keys[series-1]), 0)}}
	get := func(rows [][]byte) iter.Seq2[store.Row, error] {
		return f.store.Get(b.Context(), store.Get{Table: data, Rows: rows, Columns: columns})
	}
	scan := func(ranges []store.Range, keep bool, regexp string) iter.Seq2[store.Row, error] {
		return f.store.Scan(b.Context(), store.Scan{
			Table: data, Ranges: ranges, Columns: columns,
			Filter: store.RowFilter{Match: func([]byte) bool { return keep }, Regexp: regexp},
		})
	}
	var sparse [][]byte
	var ranges []store.Range
	for i := 0; i < series; i += 50 {
		sparse = append(sparse, keys[i])
		ranges = append(ranges, store.Range{Start: keys[i], Stop: append(slices.Clone(keys[i]), 0)})
	}
	// A tag that no row has, as a matcher for one of a tag's values would have it.
	none := fmt.Sprintf(`^.{%d}(?:.{6})*\x00\x00\x02(?:\xff\xff\xff)(?:.{6})*$`, f.settings.Schema.TagsOffset())
	cases := []struct {
		name string
		rows int // among which the cost is shared
		read iter.Seq2[store.Row, error]
	}{
		{"get_one", 1, get(keys[500:501])}, {"scan_one", 1, scan(ranges[10:11], true, "")},
		{"get_dense", series, get(keys)}, {"get_sparse", len(sparse), get(sparse)},
		{"next", series, scan(all, true, "")}, {"skip_regexp", series, scan(all, false, none)},
		{"skip_match", series, scan(all, false, "")}, {"seek", len(ranges), scan(ranges, true, "")},
	}
	for end := time.Now().Add(f.warmUp); time.Now().Before(end); {
		for _, c := range cases {
			readRows(b, c.read)
		}
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			begin := f.used()
			for b.Loop() {
				readRows(b, c.read)
			}
			b.ReportMetric(float64((f.used()-begin).Nanoseconds())/float64(b.N)/float64(c.rows), "cpu-ns/row")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.rows), "ns/row")
		})
	}
}

// readRows reads rows to their end.
func readRows(b *testing.B, rows iter.Seq2[store.Row, error]) {
	for _, err := range rows {
		if err != nil {
			b.Fatal(err)
		}
	}
}
