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
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/httputil"
	v1 "github.com/prometheus/prometheus/web/api/v1"
	"golang.org/x/time/rate"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/query/promstore"
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

	Cardinality CardinalitySource // required

	Timeout        time.Duration // --query.timeout: longest a query may take; default 2 minutes
	MaxSamples     int           // --query.max-samples: samples that a query may hold at a time; default 50 million
	LookbackDelta  time.Duration // --query.lookback-delta: for how long a sample counts; default 5 minutes
	MaxConcurrency int           // --query.max-concurrency: queries that run at a time, others wait; default 20

	// Limits that Prometheus does not have.
	// --query.max-query-bytes: length of an expression, or of all match[] of a request; default 16 KiB
	MaxQueryBytes    int
	MaxSubquerySteps int // --query.max-subquery-steps: steps of all subqueries of a query; default 1 million

	// OTLP takes the samples of /api/v1/otlp/v1/metrics, which is not served if it is nil. An error of its Commit that
	// is storage.ErrOutOfBounds is answered 400, one of store.ErrUnavailable 503, any other 500.
	OTLP storage.AppendableV2

	Features []string       // of Prometheus's --enable-feature, see FeatureNames
	Origins  *regexp.Regexp // whole origins from which browsers may ask; default any, as in Prometheus

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
//	status/buildinfo, runtimeinfo, flags, config, tsdb, walreplay, self_metrics
//	features, notifications, notifications/live           what is enabled; there are no notifications
//	admin/tsdb/*                                          that it is disabled
//	targets/metadata                                      of one target, which has no labels
//	targets, scrape_pools, rules, alerts, alertmanagers   nothing of the kind is here: empty
//	otlp/v1/metrics                                       if Config.OTLP is given
//
// Two more have handlers of their own: Version and Federate.
type Handler struct {
	config Config
	engine *promql.Engine
	gate   gate // of its queries
	calls  calls

	cardinalities cardinalities

	parse  parser.Parser
	router *route.Router // the module's
	otlp   http.Handler  // nil: not served
	start  time.Time
	told   rate.Sometimes // of warnings for which an answer has no place
}

// New returns a Handler. Close has to be called after it.
func New(c Config) (*Handler, error) {
	if c.Queryable == nil || c.Exemplars == nil || c.Metadata == nil || c.Cardinality == nil || c.Gatherer == nil ||
		c.Logger == nil {
		return nil,
			errors.New("make query API: Queryable, Exemplars, Metadata, Cardinality, Gatherer and Logger are required")
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
	if c.Origins == nil {
		c.Origins = anyOrigin
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
	enabled, err := parseFeatures(c.Features)
	if err != nil {
		return nil, err
	}
	known := enabled.registry(c)
	parse := bounds.Parser{Parser: parser.NewParser(enabled.parser()), MaxBytes: c.MaxQueryBytes}
	h := &Handler{config: c, start: c.Now(), parse: parse, router: route.New(), told: rate.Sometimes{Interval: tellEvery}}
	h.gate, h.calls = newGate(c.MaxConcurrency), newCalls()
	h.cardinalities.turn = make(chan struct{}, 1)
	h.engine = promql.NewEngine(promql.EngineOpts{
		Logger:             c.Logger,
		Reg:                c.Registerer,
		Timeout:            c.Timeout,
		MaxSamples:         c.MaxSamples,
		LookbackDelta:      c.LookbackDelta,
		ActiveQueryTracker: h.gate,
		// What Prometheus has always on.
		EnableAtModifier:         true,
		EnableNegativeOffset:     true,
		EnablePerStepStats:       enabled[featurePerStepStats],
		EnableDelayedNameRemoval: enabled[featureDelayedNameRemoval],
		NoStepSubqueryIntervalFn: func(int64) int64 { return defaultSubqueryStep.Milliseconds() },
		Parser:                   parse,
		FeatureRegistry:          known,
	})
	h.newAPI(known).Register(h.router.WithPrefix(strings.TrimSuffix(Prefix, "/")))
	if c.OTLP != nil {
		h.otlp = newOTLP(c)
	}
	return h, nil
}

// Close ends the engine. Queries under way must have ended.
func (h *Handler) Close() error { return h.engine.Close() }

// newAPI wires the module's handlers. Those of the routes that are not served get nothing.
func (h *Handler) newAPI(known features.Collector) *v1.API {
	nobody := absent{}
	return v1.NewAPI(
		boundedEngine{promstore.Engine{QueryEngine: h.engine}, h.gate, h.config.MaxSubquerySteps},
		notingQueryable{h.config.Queryable},
		nil, nil, // appenders: remote write and OTLP are served elsewhere
		notingExemplars{h.config.Exemplars},
		func(context.Context) v1.ScrapePoolsRetriever { return nobody },
		targetsOf,
		func(context.Context) v1.AlertmanagerRetriever { return nobody },
		emptyConfig,
		h.config.Flags,
		v1.GlobalURLOptions{},
		func(f http.HandlerFunc) http.HandlerFunc { return f }, // whether it is ready is the caller's business
		nobody, "", // the TSDB, and its directory
		false,    // admin routes
		false, 0, // search routes
		newSparse(h.config.Logger),
		func(context.Context) v1.RulesRetriever { return nobody },
		0, 1, 0, // remote read, which is served elsewhere
		false, // agent
		h.config.Origins,
		h.runtimeInfo,
		&h.config.Build,
		nobody.notifications, nobody.subscribe,
		h.config.Gatherer,
		nil,        // metrics of remote read
		nil,        // the default statistics of queries
		false, nil, // remote write
		false, false, false, false, h.config.LookbackDelta, false, false, // OTLP
		nil, // which status an error has: see failureWriter
		known,
		v1.OpenAPIOptions{IncludePaths: []string{"/not served"}}, // its description of the API, which is wrong here
		h.parse,
	)
}

// anyOrigin is Prometheus's default. Browsers send no credentials along.
var anyOrigin = regexp.MustCompile("^(?s:.*)$")

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, Prefix)
	serve := http.HandlerFunc(h.router.ServeHTTP)
	if path != "notifications/live" && path != "otlp/v1/metrics" {
		ctx, cancel := context.WithTimeout(r.Context(), h.config.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
	}
	switch {
	case !ok || !h.served(path):
		serve = notFound
	case r.Method == http.MethodOptions: // the module answers for every path
	case path == "status/tsdb":
		serve = h.serveCardinality
	case path == "metadata":
		serve = h.calls.inTurn(h.serveMetadata)
	case path == "targets/metadata":
		serve = h.calls.inTurn(h.serveTargetMetadata)
	case path == "otlp/v1/metrics":
		serve = h.otlp.ServeHTTP
	case path == "notifications/live": // for as long as the client stays
		serve(w, r)
		return
	default: // the module's handlers set the headers for foreign origins themselves
		if serve = withFailures(serve); isCall(path) {
			serve = h.calls.inTurn(serve)
		}
		serve(w, r)
		return
	}
	httputil.SetCORS(w, h.config.Origins, r)
	serve(w, r)
}

// isCall says whether a path of the module's handlers reads the index and is no query.
func isCall(path string) bool {
	return path == "series" || path == "labels" || path == "query_exemplars" || strings.HasPrefix(path, "label/")
}

// served says whether a path, below Prefix, is. It lists what of the module's is exposed, so that a new version of the
// module opens nothing by itself.
func (h *Handler) served(path string) bool {
	switch path {
	case "query", "query_range", "query_exemplars", "format_query", "parse_query",
		"series", "labels", "metadata", "targets/metadata", "features", "notifications", "notifications/live",
		"status/buildinfo", "status/runtimeinfo", "status/flags", "status/config", "status/self_metrics", "status/tsdb",
		"status/walreplay", "admin/tsdb/delete_series", "admin/tsdb/clean_tombstones", "admin/tsdb/snapshot",
		"targets", "scrape_pools", "rules", "alerts", "alertmanagers":
		return true
	case "otlp/v1/metrics":
		return h.otlp != nil
	}
	label, ok := strings.CutPrefix(path, "label/")
	name, values := strings.CutSuffix(label, "/values")
	return ok && values && name != "" && !strings.Contains(name, "/")
}

func notFound(w http.ResponseWriter, r *http.Request) {
	respond(w, http.StatusNotFound, v1.Response{
		Status: "error", ErrorType: "not_found", Error: fmt.Sprintf("nothing is served at %q", r.URL.Path),
	})
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
