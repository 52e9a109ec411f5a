package main

import (
	"log/slog"
	"math"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/grafana/regexp"
	"github.com/prometheus/client_golang/prometheus"
	commonmodel "github.com/prometheus/common/model"
	"github.com/prometheus/common/version"
	"github.com/prometheus/prometheus/promql/parser"
	v1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/mapping/families"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/query/promstore"
)

// promqlFlags are the flags of Prometheus's query API, named as Prometheus names them.
type promqlFlags struct {
	timeout     commonmodel.Duration
	lookback    commonmodel.Duration
	maxSamples  int
	concurrency int
	maxMemory   units.Base2Bytes
	maxTotal    units.Base2Bytes
	maxBytes    units.Base2Bytes
	maxSteps    int
	otlp        bool
	features    []string
	origins     *regexp.Regexp
}

func addPromQLFlags(cmd *kingpin.CmdClause) *promqlFlags {
	f := new(promqlFlags)
	cmd.Flag("query.timeout", "Longest that a PromQL query may take.").Default("2m").SetValue(&f.timeout)
	cmd.Flag("query.lookback-delta", "For how long a sample counts as the current one in a PromQL query.").
		Default("5m").SetValue(&f.lookback)
	cmd.Flag("query.max-samples", "Samples that a PromQL query may hold at a time.").Default(
		"50000000").IntVar(&f.maxSamples)
	cmd.Flag("query.max-concurrency", "PromQL queries that run at a time; others wait.").Default(
		"20").IntVar(&f.concurrency)
	cmd.Flag("query.max-total-memory-bytes",
		"Memory that all PromQL queries, remote reads and calls for series and labels hold "+
			"together; past it they wait, and then are answered 503. 0 is a quarter of the memory limit (GOMEMLIMIT, or "+
			"that of the container or the machine).").Default("0").BytesVar(&f.maxTotal)
	cmd.Flag("query.max-memory-bytes", "Memory that one of them holds; past it, 422. 0 is half of the total.").
		Default("0").BytesVar(&f.maxMemory)
	cmd.Flag("query.max-query-bytes", "Length of a PromQL expression, and of all selectors of a request together.").
		Default("16KiB").BytesVar(&f.maxBytes)
	cmd.Flag("query.max-subquery-steps",
		"Steps of all subqueries of a PromQL query together, such as 43,200 for [30d:1m].").
		Default("1000000").IntVar(&f.maxSteps)
	cmd.Flag("web.enable-otlp-receiver", "Take OTLP metrics at /api/v1/otlp/v1/metrics.").BoolVar(&f.otlp)
	cmd.Flag("enable-feature", "Features of PromQL that Prometheus has behind the same flag, separated by commas: "+
		strings.Join(api.FeatureNames, ", ")+".").StringsVar(&f.features)
	cmd.Flag("web.cors.origin",
		"Regular expression for the whole origins of pages whose scripts may ask the query API, such as "+
			"'https?://(one|two)\\.com'.").Default(".*").SetValue(originValue{&f.origins})
	return f
}

// originValue is the value of a flag that is a regular expression, which must match as a whole.
type originValue struct{ to **regexp.Regexp }

func (v originValue) Set(text string) (err error) {
	*v.to, err = regexp.Compile("^(?s:" + text + ")$")
	return err
}

func (v originValue) String() string {
	if *v.to == nil {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix((*v.to).String(), "^(?s:"), ")$")
}

const (
	// queryShare is the part of the memory limit that is for queries by default.
	queryShare = 4
	// unlimitedShare is what is for queries by default where there is no limit.
	unlimitedShare = 1 << 30
)

// memory makes the budget of all queries. limit is the process's limit of memory, math.MaxInt64 for none.
func (f *promqlFlags) memory(limit int64, registry prometheus.Registerer) (*budget.Budget, error) {
	c := budget.Config{Total: int64(f.maxTotal), Request: int64(f.maxMemory), Registerer: registry}
	if c.Total == 0 && limit == math.MaxInt64 {
		c.Total = unlimitedShare
	}
	if c.Total == 0 {
		c.Total = max(budget.MinTotal, limit/queryShare)
	}
	if c.Request == 0 {
		c.Request = c.Total / 2
	}
	return budget.New(c)
}

// handler makes the API.
func (f *promqlFlags) handler(
	querier *query.Querier, otlp promstore.Appendable, flags map[string]string, registry *prometheus.Registry,
	logger *slog.Logger,
) (*api.Handler, error) {
	c := api.Config{
		Queryable:   promstore.New(promstore.Config{Querier: querier}),
		Exemplars:   promstore.ExemplarQueryable{Source: querier},
		Metadata:    families.Reader{Store: querier.Store, Tables: querier.Settings.Tables},
		Cardinality: querier,
		Timeout:     time.Duration(f.timeout), MaxSamples: f.maxSamples, LookbackDelta: time.Duration(f.lookback),
		MaxConcurrency: f.concurrency, MaxQueryBytes: int(f.maxBytes), MaxSubquerySteps: f.maxSteps, Flags: flags,
		Origins: f.origins, Registerer: registry, Gatherer: registry, Logger: logger,
		Build: v1.PrometheusVersion{
			Version: version.Version, Revision: version.Revision, Branch: version.Branch, BuildUser: version.BuildUser,
			BuildDate: version.BuildDate, GoVersion: version.GoVersion,
		},
	}
	for _, names := range f.features {
		c.Features = append(c.Features, strings.Split(names, ",")...)
	}
	if f.otlp {
		c.OTLP = otlp
	}
	return api.New(c)
}

// parser parses selectors that come from outside.
func (f *promqlFlags) parser() bounds.Parser {
	return bounds.Parser{Parser: parser.NewParser(parser.Options{}), MaxBytes: int(f.maxBytes)}
}
