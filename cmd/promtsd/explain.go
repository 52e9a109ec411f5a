package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	commonmodel "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtsd/promtsd/adapter/bounds"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/budget"
	"github.com/promtsd/promtsd/store"
)

// explainFlags are the flags of explain.
type explainFlags struct {
	store      *storeFlags
	url        string
	httpConfig string
	selector   string
	start, end string
	analyze    bool
}

func addExplain(app *kingpin.Application) (string, command) {
	cmd := app.Command("explain", "Say how a selector is answered: where its series are found, which rows are read and "+
		"how, and what that is expected to cost. Without --url the store is opened, of which an embedded one allows only one "+
		"process at a time; then nothing is known of what a running promtsd has in memory, samples and index.")
	f := &explainFlags{store: addStoreFlags(cmd)}
	cmd.Flag("url",
		"Address of a running promtsd that is to explain how it answers, such as http://localhost:9201; flags of "+
			"the store count for nothing then.").StringVar(&f.url)
	cmd.Flag("http.config.file", "File that says how --url is asked, where TLS or authentication is on, "+httpConfigHelp).
		Default("").StringVar(&f.httpConfig)
	cmd.Flag("start", "Start of the time range: RFC 3339, seconds since 1970, or how long ago, such as 6h.").
		Default("1h").StringVar(&f.start)
	cmd.Flag("end", "End of it, in the same forms.").Default("0s").StringVar(&f.end)
	cmd.Flag("analyze", "Carry the query out, and say what it has touched.").BoolVar(&f.analyze)
	cmd.Arg("selector", `Selector, such as 'up{job="node"}'.`).Required().StringVar(&f.selector)
	return cmd.FullCommand(), f.explain
}

func (f *explainFlags) explain(ctx context.Context, env environment) error {
	now := time.Now()
	mint, err := parseMoment(f.start, now)
	if err != nil {
		return fmt.Errorf("--start=%s: %w", f.start, err)
	}
	maxt, err := parseMoment(f.end, now)
	if err != nil {
		return fmt.Errorf("--end=%s: %w", f.end, err)
	}
	if mint > maxt {
		return fmt.Errorf("--start=%s is after --end=%s", f.start, f.end)
	}
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(f.selector)
	if err != nil {
		return fmt.Errorf("selector %s: %w", f.selector, err)
	}
	if f.url != "" {
		return f.ask(ctx, env.out, mint, maxt)
	}
	registry := prometheus.NewRegistry()
	var st store.Store
	costs := query.EmbeddedCosts()
	if f.store.embedded() {
		st, err = f.store.openExisting(env.logger)
	} else {
		costs = query.HBaseCosts()
		st, err = f.store.open(env.logger, registry)
	}
	return withStore(st, err, func(st store.Store) error {
		settings, err := catalog.Open(ctx, st, f.store.systemTable, nil)
		if err != nil {
			return initHint(err)
		}
		uids, err := uid.New(uid.Config{
			Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names, Logger: env.logger,
		})
		if err != nil {
			return err
		}
		defer uids.Close()
		q, err := query.New(query.Config{
			Store: st, Settings: settings, Costs: costs, Logger: env.logger,
			Index: index.NewReader(index.Config{Store: st, Settings: settings, UIDs: uids}),
		})
		if err != nil {
			return err
		}
		before := requestsOf(registry)
		e, err := q.Explain(ctx, mint, maxt, matchers, f.analyze)
		if err != nil {
			return err
		}
		printExplanation(env.out, e, requestsOf(registry)-before)
		return nil
	})
}

// explainPath is where a running promtsd serves an explainHandler.
const explainPath = "/internal/v1/explain"

// ask has a running promtsd explain.
func (f *explainFlags) ask(ctx context.Context, out io.Writer, mint, maxt int64) error {
	client, err := loadHTTPClient("http.config.file", f.httpConfig)
	if err != nil {
		return err
	}
	target := strings.TrimSuffix(f.url, "/") + explainPath + "?" + url.Values{
		"selector": {f.selector}, "start": {strconv.FormatInt(mint, 10)}, "end": {strconv.FormatInt(maxt, 10)},
		"analyze": {strconv.FormatBool(f.analyze)},
	}.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return errors.New("--url is no address, such as http://localhost:9201")
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, bytes.TrimSpace(text))
	}
	if err != nil {
		return fmt.Errorf("--url=%s: %w", redacted(f.url), err)
	}
	_, err = out.Write(text)
	return err
}

// explainHandler explains how this process answers a selector, in words, as explain prints them:
//
//	GET /internal/v1/explain?selector=SELECTOR&start=MS&end=MS&analyze=true
type explainHandler struct {
	querier *query.Querier
	parse   bounds.Parser
}

func (h explainHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asked := r.URL.Query()
	mint, err := strconv.ParseInt(asked.Get("start"), 10, 64)
	var maxt int64
	if err == nil {
		maxt, err = strconv.ParseInt(asked.Get("end"), 10, 64)
	}
	var matchers []*labels.Matcher
	if err == nil && mint > maxt {
		err = errors.New("start is after end")
	}
	if err == nil {
		matchers, err = h.parse.ParseMetricSelector(asked.Get("selector"))
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("%s takes selector, start and end in ms since 1970, analyze: %v", explainPath, err),
			http.StatusBadRequest)
		return
	}
	e, err := h.querier.Explain(r.Context(), mint, maxt, matchers, asked.Get("analyze") == "true")
	switch {
	case errors.Is(err, budget.ErrBusy):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case errors.Is(err, query.ErrLimit), errors.Is(err, budget.ErrTooLarge):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		printExplanation(w, e, 0) // requests to HBase are not told apart from those of others here
	}
}

// parseMoment reads a time in milliseconds since 1970.
func parseMoment(text string, now time.Time) (int64, error) {
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		if math.Abs(seconds) > 1<<40 || seconds != seconds {
			return 0, fmt.Errorf("%v seconds since 1970 are beyond all time", seconds)
		}
		return int64(seconds * 1000), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UnixMilli(), nil
	}
	if ago, err := commonmodel.ParseDuration(text); err == nil {
		return now.Add(-time.Duration(ago)).UnixMilli(), nil
	}
	return 0, fmt.Errorf("must be a time such as 2026-01-02T15:04:05Z or 1767366245, or how long ago, such as 90m")
}

// requestsOf is the number of requests to HBase so far.
func requestsOf(registry *prometheus.Registry) (n uint64) {
	families, _ := registry.Gather() // what could not be gathered is not counted
	for _, f := range families {
		if f.GetName() == "promtsd_hbase_request_duration_seconds" {
			for _, m := range f.GetMetric() {
				n += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

func printExplanation(w io.Writer, e query.Explanation, requests uint64) {
	fmt.Fprintf(w, "series: %d, found by the index's %s among %d candidates\n",
		e.Series, accessPaths[e.AccessPath], e.Candidates)
	fmt.Fprintf(w, "hours:  %d\n", e.Hours)
	t := e.Estimate
	fmt.Fprintf(w, "plan:   %s\n", describePlan(t))
	fmt.Fprintf(w, "cost:   %d rows in %d calls and %d blocks, about %s of the store's time\n",
		t.Gets+t.Scanned, t.Calls, t.Blocks, e.Cost.Round(time.Microsecond))
	for _, read := range e.Reads {
		fmt.Fprintf(w, "read:   %v\n", read)
	}
	if more := t.Calls - len(e.Reads); more > 0 {
		fmt.Fprintf(w, "        and %d more calls\n", more)
	}
	if !e.Analyzed {
		return
	}
	t = e.Actual
	fmt.Fprintf(w, "\nactual: %s\n", describePlan(t))
	fmt.Fprintf(w, "rows:   %d touched, %d found\n", t.Gets+t.Scanned, t.Found)
	fmt.Fprintf(w, "cells:  %d, of %d bytes, with %d samples\n", t.Cells, t.Bytes, t.Samples)
	fmt.Fprintf(w, "calls:  %d in %d blocks", t.Calls, t.Blocks)
	if requests > 0 {
		fmt.Fprintf(w, ", %d requests to HBase, the index's included", requests)
	}
	fmt.Fprintf(w, "\ntime:   %s, of which finding the series %s\n",
		e.Took.Round(time.Microsecond), e.IndexTook.Round(time.Microsecond))
	for _, warning := range e.Warnings {
		fmt.Fprintf(w, "warning: %v\n", warning)
	}
}

func describePlan(t query.Touched) string {
	switch {
	case t.Rows == 0:
		return "nothing is read"
	case t.Gets == t.Rows:
		return fmt.Sprintf("get %d rows by their keys", t.Gets)
	case t.Gets == 0:
		return fmt.Sprintf("scan %d rows, of which %d are wanted", t.Scanned, t.Rows)
	default:
		return fmt.Sprintf("get %d rows by their keys, scan %d of which %d are wanted", t.Gets, t.Scanned, t.Rows-t.Gets)
	}
}

// accessPaths are the words for where series are found.
var accessPaths = map[index.AccessPath]string{
	index.AccessNone:    "names alone",
	index.AccessMemory:  "memory",
	index.AccessDays:    "rows of the days asked for",
	index.AccessList:    "list of all series",
	index.AccessRowKeys: "substitute, the row keys of the data table,",
}
