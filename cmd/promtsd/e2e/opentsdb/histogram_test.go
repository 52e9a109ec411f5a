package opentsdb_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/tsdbutil"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// histogramsOf are native histograms for each series, at times where it has no samples, and by a series of their
// own.
func histogramsOf(series []remotetest.Series) (all []prompb.TimeSeries) {
	add := func(ls []prompb.Label, samples []request.Sample, shift int64) {
		ts := prompb.TimeSeries{Labels: ls}
		for i, s := range samples {
			h := prompb.FromIntHistogram(s.T+shift, tsdbutil.GenerateTestHistogram(int64(i)))
			if i%2 == 0 {
				h = prompb.FromFloatHistogram(s.T+shift, tsdbutil.GenerateTestCustomBucketsFloatHistogram(int64(i)))
			}
			ts.Histograms = append(ts.Histograms, h)
		}
		all = append(all, ts)
	}
	for _, s := range series {
		add(s.Labels, s.Samples[:pointsPerHour], 5000)
	}
	own := []prompb.Label{{Name: "__name__", Value: pointsMetric}, {Name: "kind", Value: "histogram"}}
	add(own, series[0].Samples, 0)
	return all
}

func writeHistograms(t *testing.T, promtsd *promtest.Process, series []prompb.TimeSeries) {
	t.Helper()
	message, err := (&prompb.WriteRequest{Timeseries: series}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	res, err := remotetest.Post(t.Context(), http.DefaultClient, promtsd.URL()+"/api/v1/write",
		"application/x-protobuf", message)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("write: got %s", res.Status)
	}
}

// assertHistograms reads by remote read, and compares with what was written.
func assertHistograms(t *testing.T, promtsd *promtest.Process, want []prompb.TimeSeries) {
	t.Helper()
	query := &prompb.Query{EndTimestampMs: mapping.MaxTime,
		Matchers: []*prompb.LabelMatcher{{Name: "__name__", Value: pointsMetric}}}
	body, err := (&prompb.ReadRequest{Queries: []*prompb.Query{query}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	res, err := remotetest.Post(t.Context(), http.DefaultClient, promtsd.URL()+"/api/v1/read",
		"application/x-protobuf", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	var answer prompb.ReadResponse
	if err == nil {
		content, err = snappy.Decode(nil, content)
	}
	if err == nil {
		err = answer.Unmarshal(content)
	}
	if err != nil || len(answer.Results) != 1 {
		t.Fatalf("read: got %s, %v", res.Status, err)
	}
	for _, s := range want {
		i := slices.IndexFunc(answer.Results[0].Timeseries, func(got *prompb.TimeSeries) bool {
			return fmt.Sprint(got.Labels) == fmt.Sprint(s.Labels)
		})
		if i < 0 {
			t.Errorf("there is no series %v", s.Labels)
			continue
		}
		got := answer.Results[0].Timeseries[i].Histograms
		if !slices.EqualFunc(got, s.Histograms, sameMessage) {
			t.Errorf("series %v: got %d histograms, want %d, or they differ", s.Labels, len(got), len(s.Histograms))
		}
	}
}

func sameMessage(a, b prompb.Histogram) bool {
	x, errX := a.Marshal()
	y, errY := b.Marshal()
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// TestOpenTSDB_PassesOverHistograms has OpenTSDB read, compact and check rows that hold native histograms beside
// points, and rows of nothing else.
func TestOpenTSDB_PassesOverHistograms(t *testing.T) {
	h := promtest.NewTables(t, "histograms")
	h.Init(t)
	promtsd, want := h.Serve(t), remotetest.Model{}
	series := pointsSeries(history())
	histograms := histogramsOf(series)
	mustFlush(t, promtsd, want, some(series, func(n int) bool { return n < 100 }))
	writeHistograms(t, promtsd, histograms)
	mustFlush(t, promtsd, want, some(series, func(n int) bool { return n >= 100 }))
	assertHistograms(t, promtsd, histograms)

	tsd := openTSDB(t, h, hbasetest.TSDConfig{})
	remotetest.AssertSameSeries(t, "OpenTSDB's answer", answerOf(t, tsd, pointsMetric), want.Read(0, mapping.MaxTime, nil))
	promtest.Until(t, "OpenTSDB has compacted the points of all rows", func(context.Context) error {
		cells := map[string]int{}
		for _, c := range h.Cluster.Scan(h.DataTable()) {
			if row := string(c.Row); len(c.Qualifier)%2 == 0 {
				if cells[row]++; cells[row] > 1 {
					return fmt.Errorf("row %x has %d cells of points", row, cells[row])
				}
			}
		}
		return nil
	})
	remotetest.AssertSameSeries(t, "OpenTSDB's answer about compacted rows", answerOf(t, tsd, pointsMetric),
		want.Read(0, mapping.MaxTime, nil))
	tsd.Put(hbasetest.Point{
		Metric: pointsMetric, Tags: map[string]string{"kind": "histogram"}, Timestamp: series[0].Samples[0].T/1000 + 7,
		Value: json.Number("5"),
	})
	tsd.Stop()
	assertFsck(t, tsd, remotetest.SamplesIn(want.Read(0, mapping.MaxTime, nil))+1)
	assertHistograms(t, promtsd, histograms)
}
