package opentsdb_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

const (
	pointsHours   = 3
	pointsPerHour = 240
	pointsApart   = mapping.HourMs / pointsPerHour
	pointsMetric  = "points"
)

// pointsSeries are three series, of integers, of floats, and of both, over some whole hours.
func pointsSeries(start int64) (all []remotetest.Series) {
	for _, kind := range []string{"float", "integer", "mixed"} {
		s := remotetest.Series{Labels: []prompb.Label{{Name: "__name__", Value: pointsMetric}, {Name: "kind", Value: kind}}}
		for n := range pointsHours * pointsPerHour {
			v := float64((n - 300) * n)
			if kind == "float" || kind == "mixed" && n%3 == 0 {
				v = finiteValues[n%len(finiteValues)] + float64(n)/7
			}
			p := request.Sample{T: start + int64(n)*pointsApart, V: v}
			if n%5 == 4 {
				p.T += int64(n%7) - 3 // not on the second
			}
			s.Samples = append(s.Samples, p)
		}
		all = append(all, s)
	}
	return all
}

// some are those samples of series of which pick says so, by their place in the hour.
func some(series []remotetest.Series, pick func(inHour int) bool) (part []remotetest.Series) {
	for _, s := range series {
		picked := remotetest.Series{Labels: s.Labels}
		for n, p := range s.Samples {
			if pick(n % pointsPerHour) {
				picked.Samples = append(picked.Samples, p)
			}
		}
		part = append(part, picked)
	}
	return part
}

// mustFlush writes series to promtsd, and has it store them: as one cell of each row.
func mustFlush(t *testing.T, promtsd *promtest.Process, want remotetest.Model, series []remotetest.Series) {
	t.Helper()
	if err := remotetest.WriteInTurn(t.Context(), promtsd.URL(), 1, series); err != nil {
		t.Fatal(err)
	}
	want.Write(series)
	promtsd.Flush()
}

// assertCells checks that each row of the data table has so many cells.
func assertCells(t *testing.T, h promtest.Tables, rows, cells int) {
	t.Helper()
	found := cellsOfRows(h)
	for row, n := range found {
		if n != cells {
			t.Errorf("row %x has %d cells, want %d", row, n, cells)
		}
	}
	if len(found) != rows {
		t.Errorf("there are %d rows, want %d", len(found), rows)
	}
}

// assertBothAnswer compares what OpenTSDB and promtsd answer with what was written last.
func assertBothAnswer(t *testing.T, when string, promtsd *promtest.Process, tsd *hbasetest.TSD, want remotetest.Model) {
	t.Helper()
	wanted := want.Read(0, mapping.MaxTime, nil)
	remotetest.AssertSameSeries(t, "OpenTSDB's answer "+when, answerOf(t, tsd, pointsMetric), wanted)
	remotetest.AssertReads(t, promtsd.URL(), pointsMetric, want)
}

// TestOpenTSDB_CompactsCellsOfManyPoints has OpenTSDB read and compact rows that promtsd wrote as some cells of many
// points each, and to which OpenTSDB added points of its own, each in a cell.
func TestOpenTSDB_CompactsCellsOfManyPoints(t *testing.T) {
	for _, schema := range sharedSchemas {
		t.Run(schema.name, func(t *testing.T) {
			h := promtest.NewTables(t, "points_"+schema.name)
			h.Init(t, schema.flags...)
			promtsd, want := h.Serve(t), remotetest.Model{}
			series := pointsSeries(history())
			rows := len(series) * pointsHours

			// The beginning of each hour; then every other sample of the rest; then, backwards, those between them.
			mustFlush(t, promtsd, want, some(series, func(n int) bool { return n < 100 }))
			mustFlush(t, promtsd, want, some(series, func(n int) bool { return n >= 100 && n%2 == 0 }))
			between := some(series, func(n int) bool { return n >= 100 && n%2 == 1 })
			for _, s := range between {
				slices.Reverse(s.Samples)
			}
			mustFlush(t, promtsd, want, between)
			assertCells(t, h, rows, 3)

			putting := openTSDB(t, h, schema.tsd, "tsd.storage.enable_compaction=false")
			assertBothAnswer(t, "about rows of some cells", promtsd, putting, want)
			var points []hbasetest.Point
			for n := 0; n < pointsPerHour; n += 30 {
				at := series[0].Samples[0].T + int64(n)*pointsApart
				for i, point := range []hbasetest.Point{
					{Timestamp: (at + 7000) / 1000, Value: json.Number(strconv.Itoa(-n))},
					{Timestamp: at + 7250, Value: "1.5"},
				} {
					s := series[(n/30+i)%len(series)]
					point.Metric, point.Tags = pointsMetric, map[string]string{"kind": s.Labels[1].Value}
					points = append(points, point)
					v, _ := point.Value.Float64()
					want.Write([]remotetest.Series{{Labels: s.Labels, Samples: []request.Sample{{T: at + 7000 + int64(i)*250, V: v}}}})
				}
			}
			putting.Put(points...)
			assertBothAnswer(t, "about rows with cells of its own", promtsd, putting, want)
			putting.Stop()
			samples := remotetest.SamplesIn(want.Read(0, mapping.MaxTime, nil))
			assertFsck(t, putting, samples)

			compacting := openTSDB(t, h, schema.tsd)
			assertBothAnswer(t, "as it compacts", promtsd, compacting, want)
			awaitCompacted(t, h)
			assertCells(t, h, rows, 1)
			assertBothAnswer(t, "about rows that it has compacted", promtsd, compacting, want)
			compacting.Stop()
			assertFsck(t, compacting, samples)

			// Late samples go beside what OpenTSDB made.
			late := some(series, func(n int) bool { return n%60 == 7 })
			for _, s := range late {
				for i := range s.Samples {
					s.Samples[i].T += 8000
				}
			}
			mustFlush(t, promtsd, want, late)
			assertCells(t, h, rows, 2)
			again := openTSDB(t, h, schema.tsd)
			assertBothAnswer(t, "about samples that came late", promtsd, again, want)
			awaitCompacted(t, h)
			assertBothAnswer(t, "about rows compacted again", promtsd, again, want)
			again.Stop()
			assertFsck(t, again, samples+remotetest.SamplesIn(readable(late)))
		})
	}
}

// readable is series as they are read.
func readable(series []remotetest.Series) []remotetest.ReadSeries {
	m := remotetest.Model{}
	m.Write(series)
	return m.Read(0, mapping.MaxTime, nil)
}

// TestOpenTSDB_CompactsPointsThatAreThereTwice is about the same instants in several cells of a row: samples that were
// sent or replayed once more, together with others, and samples that others replaced. OpenTSDB needs to be told to bear
// with the latter.
func TestOpenTSDB_CompactsPointsThatAreThereTwice(t *testing.T) {
	h := promtest.NewTables(t, "points_twice")
	h.Init(t)
	promtsd, want := h.Serve(t), remotetest.Model{}
	series := pointsSeries(history())
	rows := len(series) * pointsHours
	mustFlush(t, promtsd, want, some(series, func(n int) bool { return n < 150 }))
	mustFlush(t, promtsd, want, some(series, func(n int) bool { return n >= 50 }))
	assertCells(t, h, rows, 2)

	unfixed := openTSDB(t, h, hbasetest.TSDConfig{}, "tsd.storage.enable_compaction=false")
	assertBothAnswer(t, "about points that were stored twice", promtsd, unfixed, want)
	unfixed.Stop()
	// Its checker counts them as errors, of which compaction is the cure.
	out, _ := unfixed.Tool("Fsck", "--full-scan", "--threads=1")
	for _, want := range []string{"Duplicate Datapoints: 900\n", "Total Errors: 900\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("Fsck does not say %q:\n%s", want, lastLines(out, 30))
		}
	}

	replaced := some(series, func(n int) bool { return n%3 == 0 })
	for _, s := range replaced {
		for i := range s.Samples {
			s.Samples[i].V = float64(i) + 0.25
		}
	}
	mustFlush(t, promtsd, want, replaced)
	assertCells(t, h, rows, 3)
	fixing := openTSDB(t, h, hbasetest.TSDConfig{}, "tsd.storage.fix_duplicates=true")
	assertBothAnswer(t, "about points that were replaced", promtsd, fixing, want)
	awaitCompacted(t, h)
	assertBothAnswer(t, "about rows that it has compacted", promtsd, fixing, want)
	fixing.Stop()
	assertFsck(t, fixing, remotetest.SamplesIn(want.Read(0, mapping.MaxTime, nil)))
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
