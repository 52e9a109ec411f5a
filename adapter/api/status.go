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
	"github.com/promtsd/promtsd/query/budget"
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
// metrics and labels. It counts no chunks. Like a Prometheus's, the counts may be half a minute old.
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

// cardinalities are counted by one request at a time, and good for the others for as long as a Prometheus's head keeps
// them.
type cardinalities struct {
	turn    chan struct{} // has an entry while somebody has its turn, who may touch what follows
	counted query.Cardinality
	limit   int // of the lists; 0: nothing is counted yet
	maxt    time.Time
}

const (
	cardinalityAge  = 30 * time.Second // how old counts may be
	keptCardinality = 1 << 20          // bytes of counts that are kept for others
	countBytes      = 128              // of a count besides its name
)

func (h *Handler) cardinality(ctx context.Context, limit int) (*v1.TSDBStatus, error) {
	c := &h.cardinalities
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	counted, maxt := c.counted, c.maxt
	if now := h.config.Now(); limit > c.limit || now.Sub(maxt).Abs() >= cardinalityAge {
		var err error
		counted, err = h.config.Cardinality.Cardinality(ctx, now.Add(-headRange).UnixMilli(), now.UnixMilli(), limit)
		if err != nil {
			return nil, err
		}
		if maxt = now; cardinalityBytes(counted) <= keptCardinality {
			c.counted, c.limit, c.maxt = counted, limit, maxt
		}
	}
	if err := budget.From(ctx).Take(ctx, cardinalityBytes(counted)); err != nil {
		return nil, err
	}
	return &v1.TSDBStatus{
		HeadStats: v1.HeadStats{
			NumSeries: uint64(counted.Series), NumLabelPairs: counted.Pairs,
			MinTime: maxt.Add(-headRange).UnixMilli(), MaxTime: maxt.UnixMilli(),
		},
		SeriesCountByMetricName:     statsOf(counted.SeriesByMetric, limit),
		LabelValueCountByLabelName:  statsOf(counted.ValuesByLabel, limit),
		MemoryInBytesByLabelName:    statsOf(counted.BytesByLabel, limit),
		SeriesCountByLabelValuePair: statsOf(counted.SeriesByPair, limit),
	}, nil
}

// cardinalityBytes is the memory of counts, and of the answer made of them.
func cardinalityBytes(c query.Cardinality) (bytes int64) {
	for _, list := range [][]query.Count{c.SeriesByMetric, c.ValuesByLabel, c.BytesByLabel, c.SeriesByPair} {
		for _, count := range list {
			bytes += countBytes + answerTimes*int64(len(count.Name))
		}
	}
	return bytes + familyBytes
}

func statsOf(counts []query.Count, limit int) []v1.TSDBStat {
	stats := make([]v1.TSDBStat, min(limit, len(counts)))
	for i := range stats {
		stats[i] = v1.TSDBStat{Name: counts[i].Name, Value: counts[i].N}
	}
	return stats
}
