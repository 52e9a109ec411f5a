package api

import (
	"context"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtsd/promtsd/query"
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

// CardinalitySource counts series; query.Querier is one.
type CardinalitySource interface {
	Cardinality(ctx context.Context, mint, maxt int64, most int) (query.Cardinality, error)
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
	counted, err := h.config.Cardinality.Cardinality(ctx, mint.UnixMilli(), maxt.UnixMilli(), limit)
	if err != nil {
		return nil, err
	}
	return &v1.TSDBStatus{
		HeadStats: v1.HeadStats{
			NumSeries: uint64(counted.Series), NumLabelPairs: counted.Pairs,
			MinTime: mint.UnixMilli(), MaxTime: maxt.UnixMilli(),
		},
		SeriesCountByMetricName:     statsOf(counted.SeriesByMetric),
		LabelValueCountByLabelName:  statsOf(counted.ValuesByLabel),
		MemoryInBytesByLabelName:    statsOf(counted.BytesByLabel),
		SeriesCountByLabelValuePair: statsOf(counted.SeriesByPair),
	}, nil
}

func statsOf(counts []query.Count) []v1.TSDBStat {
	stats := make([]v1.TSDBStat, len(counts))
	for i, c := range counts {
		stats[i] = v1.TSDBStat{Name: c.Name, Value: c.N}
	}
	return stats
}
