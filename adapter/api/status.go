package api

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/index"
	v1 "github.com/prometheus/prometheus/web/api/v1"
)

func (h *Handler) runtimeInfo() (v1.RuntimeInfo, error) {
	hostname, err := os.Hostname()
	if err != nil {
		return v1.RuntimeInfo{}, err
	}
	directory, err := os.Getwd()
	if err != nil {
		return v1.RuntimeInfo{}, err
	}
	return v1.RuntimeInfo{
		StartTime:           h.start.UTC(),
		CWD:                 directory,
		Hostname:            hostname,
		ServerTime:          h.config.Now().UTC(),
		ReloadConfigSuccess: true, // there is none to fail
		LastConfigTime:      h.start.UTC(),
		GoroutineCount:      runtime.NumGoroutine(),
		GOMAXPROCS:          runtime.GOMAXPROCS(0),
		GOMEMLIMIT:          debug.SetMemoryLimit(-1),
		GOGC:                os.Getenv("GOGC"),
		GODEBUG:             os.Getenv("GODEBUG"),
	}, nil
}

const (
	// headRange is how far back the series of status/tsdb go. A Prometheus's head holds about as much.
	headRange = 2 * time.Hour

	maxCardinalityLimit = 10_000
)

// serveCardinality answers status/tsdb: how many series were active on the days of the last two hours, and by which
// metrics and labels. It counts no chunks.
func (h *Handler) serveCardinality(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, r.URL.Path+" takes GET, not "+r.Method, http.StatusMethodNotAllowed)
		return
	}
	limit := 10
	if text := r.FormValue("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxCardinalityLimit {
			respond(w, http.StatusBadRequest, v1.Response{
				Status: "error", ErrorType: "bad_data", Error: "limit must be 1 to " + strconv.Itoa(maxCardinalityLimit),
			})
			return
		}
	}
	status, err := h.cardinality(r.Context(), limit)
	if err != nil {
		respondError(w, err)
		return
	}
	respond(w, http.StatusOK, v1.Response{Status: "success", Data: status})
}

func (h *Handler) cardinality(ctx context.Context, limit int) (*v1.TSDBStatus, error) {
	maxt := h.config.Now()
	mint := maxt.Add(-headRange)
	q, err := h.config.Queryable.Querier(mint.UnixMilli(), maxt.UnixMilli())
	if err != nil {
		return nil, err
	}
	defer func() { _ = q.Close() }()
	hints := &storage.SelectHints{Start: mint.UnixMilli(), End: maxt.UnixMilli(), Func: "series"}
	set := q.Select(ctx, false, hints)
	postings, series := index.NewMemPostings(), storage.SeriesRef(0)
	for set.Next() {
		series++
		postings.Add(series, set.At().Labels())
	}
	if err := set.Err(); err != nil {
		return nil, err
	}
	stats := postings.Stats(model.MetricNameLabel, limit, labels.SizeOfLabels)
	return &v1.TSDBStatus{
		HeadStats: v1.HeadStats{
			NumSeries: uint64(series), NumLabelPairs: stats.NumLabelPairs,
			MinTime: mint.UnixMilli(), MaxTime: maxt.UnixMilli(),
		},
		SeriesCountByMetricName:     v1.TSDBStatsFromIndexStats(stats.CardinalityMetricsStats),
		LabelValueCountByLabelName:  v1.TSDBStatsFromIndexStats(stats.CardinalityLabelStats),
		MemoryInBytesByLabelName:    v1.TSDBStatsFromIndexStats(stats.LabelValueStats),
		SeriesCountByLabelValuePair: v1.TSDBStatsFromIndexStats(stats.LabelValuePairsStats),
	}, nil
}
