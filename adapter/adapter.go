// Package adapter is promtsd on the wire: the HTTP handlers of remote write and remote read with their limits, answers
// and metrics, and the pages of the program itself. What the bodies look like is in adapter/wire; what becomes of the
// samples is behind the interfaces Appender and Querier.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/time/rate"

	"github.com/promtsd/promtsd/adapter/fair"
	"github.com/promtsd/promtsd/adapter/wire"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
)

// Appender stores the samples of a write request. It may be called by many goroutines at once.
type Appender interface {
	// Append makes the samples of req durable and readable, and its exemplars and metadata. What can never be stored is
	// in the result. An error means that the whole request should be sent again, which is harmless; the result then
	// counts what is known to be stored. Nothing of req is kept after the return.
	Append(ctx context.Context, req *request.Write) (request.Result, error)
}

// Querier finds series. It may be called by many goroutines at once.
type Querier interface {
	// Select finds the series that all matchers match, with their samples from mint to maxt, both inclusive, in
	// milliseconds, any int64, mint not above maxt. With labelsOnly the series come without samples.
	Select(ctx context.Context, mint, maxt int64, labelsOnly bool, matchers []*labels.Matcher) (query.SeriesSet, error)
}

// WriteLimits bound remote write. Each zero means its default.
type WriteLimits struct {
	// MaxBodyBytes bounds a body, as it is sent (more is 413) and inflated (more is 400). The lists that it is taken
	// apart into may have four times as many bytes each. Default 32 MiB.
	MaxBodyBytes int
	// MaxInFlightBytes bounds the memory of all requests together, with their connections, and that of the bodies of reads
	// and queries; more is 503, to be sent again. Those of one client have three times what is free at most. A request
	// that is alone has three times MaxBodyBytes at least; one that would take more than it gets alone is 413. Default
	// 256 MiB.
	MaxInFlightBytes int
	// LeastTime is how long 16 KiB of the body of any request may take to come. Default 15 seconds.
	LeastTime time.Duration
}

// ReadLimits bound remote read. Each zero means its default.
type ReadLimits struct {
	// MaxConcurrent is the number of requests that run at a time; others wait. Those of one client are three times what is
	// free at most. Default 10.
	MaxConcurrent int
	// MaxRequestBytes bounds a request, as it is sent (more is 413) and inflated (more is 400). Default 4 MiB.
	MaxRequestBytes int
	// MaxSamples bounds the samples of an answer in the SAMPLES response type, which is built in memory; more is 400. The
	// streamed one has no such bound. Default 50 million.
	MaxSamples int
	// MaxResponseBytes bounds an answer in the SAMPLES response type before compression; more is 400. At most 2 GiB,
	// default 512 MiB.
	MaxResponseBytes int
	// WriteTimeout is how long the client may take to accept a megabyte of an answer. Default 1 minute.
	WriteTimeout time.Duration
}

// Config is what a Handler needs.
type Config struct {
	Appender   Appender              // required
	Querier    Querier               // required
	NewFinder  func() request.Finder // makes finders that the Appender makes use of; nil: it needs none
	Write      WriteLimits
	Read       ReadLimits
	Memory     *budget.Budget        // of all reads together; nil: without bound
	Registerer prometheus.Registerer // for the metrics of the handlers; nil: they are not registered
	Gatherer   prometheus.Gatherer   // what /metrics shows; required
	Ready      func() error          // asked by /-/ready once the handler is ready; nil: it is
	Starting   func() string         // asked by /-/ready before: what is being done; nil: nothing is said
	Healthy    func() error          // asked by /-/healthy: why only a restart of the process helps; nil: it never does
	Logger     *slog.Logger          // required
	Now        func() time.Time      // for durations; nil: time.Now
	Version    string                // for the index page
	Profiles   bool                  // serve /debug/pprof/
}

// Handler serves promtsd's HTTP interface:
//
//	POST /api/v1/write   remote write 1.0 and 2.0
//	POST /api/v1/read    remote read, samples and streamed chunks
//	GET  /metrics, /-/healthy, /-/ready, /
//	GET  /debug/pprof/   if it is asked for
//
// It is not ready until SetReady.
type Handler struct {
	config   Config
	mux      *http.ServeMux
	metrics  *metrics
	notReady atomic.Pointer[string] // why; nil: ready
	draining atomic.Bool

	blocks   sync.Pool // *[]byte
	writes   sync.Pool // *writeBuffers
	inFlight bodyBudget

	reads     *fair.Places // of reads that run
	responses sync.Pool    // *readBuffers
	told      rate.Sometimes
}

// New returns a Handler.
func New(c Config) (*Handler, error) {
	if c.Appender == nil || c.Querier == nil || c.Gatherer == nil || c.Logger == nil {
		return nil, errors.New("make HTTP handler: Appender, Querier, Gatherer and Logger are required")
	}
	for _, limit := range []struct {
		flag      string
		value     *int
		byDefault int
		largest   int
	}{
		{flagMaxBodyBytes, &c.Write.MaxBodyBytes, 32 << 20, 1 << 30},
		{flagMaxInFlightBytes, &c.Write.MaxInFlightBytes, 256 << 20, 1 << 40},
		{flagMaxConcurrentReads, &c.Read.MaxConcurrent, 10, 1 << 16},
		{flagMaxReadRequestBytes, &c.Read.MaxRequestBytes, 4 << 20, 1 << 30},
		{flagMaxReadSamples, &c.Read.MaxSamples, 50_000_000, 1 << 40},
		{flagMaxResponseBytes, &c.Read.MaxResponseBytes, 512 << 20, 1<<31 - 1},
	} {
		if *limit.value == 0 {
			*limit.value = limit.byDefault
		}
		if *limit.value < 1 || *limit.value > limit.largest {
			return nil, fmt.Errorf("%s is %d, must be 1 to %d", limit.flag, *limit.value, limit.largest)
		}
	}
	if c.Write.LeastTime == 0 {
		c.Write.LeastTime = 15 * time.Second
	}
	if c.Read.WriteTimeout == 0 {
		c.Read.WriteTimeout = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	h := &Handler{config: c, mux: http.NewServeMux(), reads: fair.NewPlaces(c.Read.MaxConcurrent)}
	h.told.Interval = tellEvery
	h.inFlight.max, h.inFlight.least = int64(c.Write.MaxInFlightBytes), 3*int64(c.Write.MaxBodyBytes)
	h.inFlight.held = make(map[string]int64)
	h.blocks.New = func() any { return new([]byte) }
	h.writes.New = func() any {
		b := &writeBuffers{decoder: wire.Decoder{MaxBytes: 4 * c.Write.MaxBodyBytes}}
		if c.NewFinder != nil {
			b.decoder.Finder = c.NewFinder()
		}
		return b
	}
	h.responses.New = func() any { return newReadBuffers(c.Read) }
	starting := starting
	h.notReady.Store(&starting)
	var err error
	if h.metrics, err = newMetrics(c.Registerer, &h.inFlight, h.reads); err != nil {
		return nil, fmt.Errorf("register metrics of the HTTP handlers: %w", err)
	}

	h.mux.HandleFunc(writePath, h.serveWrite)
	h.mux.HandleFunc(readPath, h.serveRead)
	h.mux.HandleFunc("/-/healthy", h.serveHealthy)
	h.mux.HandleFunc("/-/ready", h.serveReady)
	h.mux.Handle("/metrics", promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{}))
	if c.Profiles {
		h.mux.HandleFunc("/debug/pprof/", pprof.Index)
		h.mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		h.mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		h.mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	h.mux.HandleFunc("/", h.serveIndex)
	return h, nil
}

// starting is why requests are refused before SetReady.
const starting = "starting"

const (
	writePath = "/api/v1/write"
	readPath  = "/api/v1/read"
)

// RemotePaths are those of remote write and remote read, which stand among those of Prometheus's query API.
var RemotePaths = []string{writePath, readPath}

// The flags that the errors of this package name; cmd/promtsd must call them so.
const (
	flagMaxBodyBytes        = "--write.max-body-bytes"
	flagMaxInFlightBytes    = "--write.max-in-flight-bytes"
	flagMaxConcurrentReads  = "--read.max-concurrent"
	flagMaxReadRequestBytes = "--read.max-request-bytes"
	flagMaxReadSamples      = "--read.max-samples"
	flagMaxResponseBytes    = "--read.max-response-bytes"
)

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// SetReady makes /-/ready say so, unless Drain was called.
func (h *Handler) SetReady() {
	if !h.draining.Load() {
		h.notReady.Store(nil)
	}
}

// WhenReady serves what next does, but 503 until SetReady and after Drain, as for writes and reads.
func (h *Handler) WhenReady(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused := h.refuse(w); refused != nil {
			refused.send(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Account gives each request that next serves an account of the memory of all reads, which is closed when it has been
// served.
func (h *Handler) Account(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := h.config.Memory.Open()
		defer account.Close()
		if err := account.Take(r.Context(), requestBytes); err != nil {
			replyToRead(r.Context(), err).send(w)
			return
		}
		answer := h.paceAnswer(w)
		ctx := request.WithSender(budget.NewContext(r.Context(), account), fair.Client(r.RemoteAddr))
		next.ServeHTTP(answer, r.WithContext(ctx))
		answer.end()
	})
}

// requestBytes is what any request takes of memory: so their number is bounded, too.
const requestBytes = 64 << 10

// Drain makes the handler refuse new writes and reads with 503. Those under way go on: http.Server.Shutdown waits for
// them.
func (h *Handler) Drain() {
	h.draining.Store(true)
	reason := "draining"
	h.notReady.Store(&reason)
}
