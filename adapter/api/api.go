// Package api is Prometheus's HTTP API on promtsd's data: the module's own query engine and its own handlers of
// /api/v1/*, those of them that have a meaning here, and its receiver of OTLP metrics.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/store"
)

// defaultSubqueryStep is the step of subqueries that name none: Prometheus's default evaluation interval.
const defaultSubqueryStep = time.Minute

// Prefix is where Handler has to be mounted.
const Prefix = "/api/v1/"

// Config is what a Handler needs. The limits are those of Prometheus's flags of the same names.
type Config struct {
	Queryable storage.SampleAndChunkQueryable // required
	Exemplars storage.ExemplarQueryable       // required
	Metadata  MetadataSource                  // required

	Timeout        time.Duration // --query.timeout: longest a query may take; default 2 minutes
	MaxSamples     int           // --query.max-samples: samples that a query may hold at a time; default 50 million
	LookbackDelta  time.Duration // --query.lookback-delta: for how long a sample counts; default 5 minutes
	MaxConcurrency int           // --query.max-concurrency: queries that run at a time, others wait; default 20

	// Limits that Prometheus does not have.
	MaxQueryBytes    int // --query.max-query-bytes: length of an expression, or of all match[] of a request; default 16 KiB
	MaxSubquerySteps int // --query.max-subquery-steps: steps of all subqueries of a query; default 1 million

	// OTLP takes the samples of /api/v1/otlp/v1/metrics, which is not served if it is nil. An error of its Commit that
	// is storage.ErrOutOfBounds is answered 400, one of store.ErrUnavailable 503, any other 500.
	OTLP storage.AppendableV2

	Flags      map[string]string     // what /api/v1/status/flags shows
	Build      v1.PrometheusVersion  // what /api/v1/status/buildinfo shows
	Registerer prometheus.Registerer // metrics of the engine and of OTLP; nil: they are not registered
	Gatherer   prometheus.Gatherer   // what /api/v1/status/self_metrics shows; required
	Logger     *slog.Logger          // required
	Now        func() time.Time      // default time.Now
}

// Handler serves these below Prefix; everything else there is 404:
//
//	query, query_range, query_exemplars, format_query, parse_query
//	series, labels, label/NAME/values, metadata
//	status/buildinfo, runtimeinfo, flags, config, tsdb, self_metrics
//	targets/metadata                                      of one target, which has no labels
//	targets, scrape_pools, rules, alerts, alertmanagers   nothing of the kind is here: empty
//	otlp/v1/metrics                                       if Config.OTLP is given
type Handler struct {
	config Config
	engine *promql.Engine
	router *route.Router // the module's
	otlp   http.Handler  // nil: not served
	start  time.Time
}

// New returns a Handler. Close has to be called after it.
func New(c Config) (*Handler, error) {
	if c.Queryable == nil || c.Exemplars == nil || c.Metadata == nil || c.Gatherer == nil || c.Logger == nil {
		return nil, errors.New("make query API: Queryable, Exemplars, Metadata, Gatherer and Logger are required")
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	if c.MaxSamples == 0 {
		c.MaxSamples = 50_000_000
	}
	if c.LookbackDelta == 0 {
		c.LookbackDelta = 5 * time.Minute
	}
	if c.MaxConcurrency == 0 {
		c.MaxConcurrency = 20
	}
	if c.MaxQueryBytes == 0 {
		c.MaxQueryBytes = 16 << 10
	}
	if c.MaxSubquerySteps == 0 {
		c.MaxSubquerySteps = 1_000_000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Flags == nil {
		c.Flags = map[string]string{}
	}
	for flag, ok := range map[string]bool{
		"--query.timeout":            c.Timeout > 0,
		"--query.max-samples":        c.MaxSamples > 0,
		"--query.lookback-delta":     c.LookbackDelta >= time.Millisecond,
		"--query.max-concurrency":    c.MaxConcurrency > 0 && c.MaxConcurrency <= 1<<16,
		"--query.max-query-bytes":    c.MaxQueryBytes > 0,
		"--query.max-subquery-steps": c.MaxSubquerySteps > 0,
	} {
		if !ok {
			return nil, fmt.Errorf("%s is out of range", flag)
		}
	}
	parse := bounds.Parser{Parser: parser.NewParser(parser.Options{}), MaxBytes: c.MaxQueryBytes}
	h := &Handler{config: c, start: c.Now(), router: route.New()}
	h.engine = promql.NewEngine(promql.EngineOpts{
		Logger:             c.Logger,
		Reg:                c.Registerer,
		Timeout:            c.Timeout,
		MaxSamples:         c.MaxSamples,
		LookbackDelta:      c.LookbackDelta,
		ActiveQueryTracker: make(gate, c.MaxConcurrency),
		// What Prometheus has always on.
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultSubqueryStep.Milliseconds() },
		Parser:                   parse,
	})
	h.newAPI(parse).Register(h.router.WithPrefix(strings.TrimSuffix(Prefix, "/")))
	if c.OTLP != nil {
		h.otlp = newOTLP(c)
	}
	return h, nil
}

// Close ends the engine. Queries under way must have ended.
func (h *Handler) Close() error { return h.engine.Close() }

// newAPI wires the module's handlers. Those of the routes that are not served get nothing.
func (h *Handler) newAPI(parse parser.Parser) *v1.API {
	nobody := absent{}
	return v1.NewAPI(
		boundedEngine{h.engine, h.config.MaxSubquerySteps},
		h.config.Queryable,
		nil, nil, // appenders: remote write and OTLP are served elsewhere
		h.config.Exemplars,
		func(context.Context) v1.ScrapePoolsRetriever { return nobody },
		targetsOf,
		func(context.Context) v1.AlertmanagerRetriever { return nobody },
		emptyConfig,
		h.config.Flags,
		v1.GlobalURLOptions{},
		func(f http.HandlerFunc) http.HandlerFunc { return f }, // whether it is ready is the caller's business
		nil, "", // the TSDB, for routes that are not served, and its directory
		false,    // admin routes
		false, 0, // search routes
		h.config.Logger,
		func(context.Context) v1.RulesRetriever { return nobody },
		0, 1, 0, // remote read, which is served elsewhere
		false, // agent
		anyOrigin,
		h.runtimeInfo,
		&h.config.Build,
		nil, nil, // notifications
		h.config.Gatherer,
		nil,        // metrics of remote read
		nil,        // the default statistics of queries
		false, nil, // remote write
		false, false, false, false, h.config.LookbackDelta, false, false, // OTLP
		errorCode,
		nil, // features
		v1.OpenAPIOptions{IncludePaths: []string{"/not served"}}, // its description of the API, which is wrong here
		parse,
	)
}

// anyOrigin is Prometheus's default for cross-origin requests. Browsers send no credentials along with them.
var anyOrigin = regexp.MustCompile("^(?:.*)$")

// errorCode chooses the status where the module's choice says too little: what may pass is 503, to be tried again. The
// module does not export the type N of its own classes of errors.
func errorCode[N any](_ N, err error) (code int, override bool) {
	for _, mayPass := range []error{store.ErrUnavailable, store.ErrClosed, context.DeadlineExceeded} {
		if errors.Is(err, mayPass) {
			return http.StatusServiceUnavailable, true
		}
	}
	return 0, false
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path, ok := strings.CutPrefix(r.URL.Path, Prefix); {
	case ok && path == "status/tsdb":
		h.serveCardinality(w, r)
	case ok && (path == "metadata" || path == "targets/metadata"):
		h.serveMetadata(w, r)
	case ok && path == "otlp/v1/metrics" && h.otlp != nil:
		h.otlp.ServeHTTP(w, r)
	case ok && served(path):
		h.router.ServeHTTP(w, r)
	default:
		respond(w, http.StatusNotFound, v1.Response{
			Status: "error", ErrorType: "not_found", Error: fmt.Sprintf("nothing is served at %q", r.URL.Path),
		})
	}
}

// served says whether the module's handler of a path, below Prefix, is exposed. It lists what is, so that a new
// version of the module opens nothing by itself.
func served(path string) bool {
	switch path {
	case "query", "query_range", "query_exemplars", "format_query", "parse_query",
		"series", "labels",
		"status/buildinfo", "status/runtimeinfo", "status/flags", "status/config", "status/self_metrics",
		"targets", "scrape_pools", "rules", "alerts", "alertmanagers":
		return true
	}
	label, ok := strings.CutPrefix(path, "label/")
	name, values := strings.CutSuffix(label, "/values")
	return ok && values && name != "" && !strings.Contains(name, "/")
}

// respond writes an answer in the module's form.
func respond(w http.ResponseWriter, code int, answer v1.Response) {
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// respondError answers as the module does when it cannot execute a query.
func respondError(w http.ResponseWriter, err error) {
	code, ok := errorCode(0, err)
	if !ok {
		code = http.StatusUnprocessableEntity
	}
	respond(w, code, v1.Response{Status: "error", ErrorType: "execution", Error: err.Error()})
}
