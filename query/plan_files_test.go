package query_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// The files say for a store and a selector which rows are read, and how. Their commands:
//
//	store [SETTING=VALUE]...
//	    an empty store; salt.buckets=3, say
//
//	write series=N from=HOUR hours=N
//	METRIC
//	    a sample in each hour of each of N series of a metric, METRIC{i="0"}, METRIC{i="1"} and so on
//
//	plan from=TIME to=TIME [memory] [method=get|scan]
//	SELECTOR
//	    the access path to the series, and the calls of the store, of the index and of the data table
//
// -rewrite writes the files anew; then the difference is to be read.
func TestPlans(t *testing.T) {
	datadriven.Walk(t, "testdata/plans", func(t *testing.T, path string) {
		var db *database
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "store":
				asked := map[string]string{}
				for _, arg := range d.CmdArgs {
					asked[arg.Key] = arg.Vals[0]
				}
				db = newDatabase(t, storetest.NewMem(), asked)
			case "write":
				writeSeries(t, db, d)
			case "plan":
				return planText(t, db, d)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

func timeArg(t *testing.T, d *datadriven.TestData, name string) int64 {
	var text string
	d.ScanArgs(t, name, &text)
	at, err := time.Parse("2006-01-02T15:04", text)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	return at.UnixMilli()
}

func writeSeries(t *testing.T, db *database, d *datadriven.TestData) {
	var series, hours int
	d.ScanArgs(t, "series", &series)
	d.ScanArgs(t, "hours", &hours)
	from := timeArg(t, d, "from")
	for i := range series {
		var samples []request.Sample
		for hour := range hours {
			samples = append(samples, request.Sample{T: from + int64(hour)*mapping.HourMs, V: 1})
		}
		db.write(t, labels.FromStrings("__name__", strings.TrimSpace(d.Input), "i", strconv.Itoa(i)), samples...)
	}
}

func planText(t *testing.T, db *database, d *datadriven.TestData) string {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(d.Input)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	calls := &recorder{Store: db.Store}
	with := func(c *query.Config) {
		c.Store, c.Concurrency = calls, 1
		c.Index.Store, calls.uids = calls, c.Index.UIDs
	}
	asked := db.withQuerier(db.Store, with)
	if d.HasArg("memory") {
		asked = db.remembering(t, with)
	}
	if d.HasArg("method") {
		var method string
		d.ScanArgs(t, "method", &method)
		asked.Querier.ForceMethod(method)
	}
	e, err := asked.Querier.Explain(t.Context(), timeArg(t, d, "from"), timeArg(t, d, "to"), matchers, true)
	if err != nil {
		d.Fatalf(t, "%v", err)
	}
	var out strings.Builder
	fmt.Fprintf(&out, "series by %s: %d of %d candidates, %d hours\n", e.AccessPath, e.Series, e.Candidates, e.Hours)
	for _, read := range e.Reads {
		fmt.Fprintf(&out, "plan: %v\n", read)
	}
	for _, call := range calls.calls {
		fmt.Fprintln(&out, call())
	}
	if touched := e.Actual; touched.Rows > 0 {
		fmt.Fprintf(&out, "%d rows found of %d\n", touched.Found, touched.Rows)
	}
	return out.String()
}

// recorder writes down the calls of the tables of the index and the data, one after the other.
type recorder struct {
	store.Store
	uids  *uid.Registry
	calls []func() string // called at the end, when the names of UIDs are known
}

func (r *recorder) Get(ctx context.Context, g store.Get) iter.Seq2[store.Row, error] {
	const shown = 3
	for i, row := range g.Rows {
		switch more := len(g.Rows) - shown; {
		case g.Table == "tsdb-uid" || i > shown:
		case i == shown && more > 1:
			r.calls = append(r.calls, func() string { return fmt.Sprintf("%s: get %d more", g.Table, more) })
		default:
			row = bytes.Clone(row)
			r.calls = append(r.calls, func() string { return fmt.Sprintf("%s: get %s", g.Table, r.key(g.Table, row)) })
		}
	}
	return r.Store.Get(ctx, g)
}

func (r *recorder) Scan(ctx context.Context, s store.Scan) iter.Seq2[store.Row, error] {
	filter := ""
	if s.Filter.Regexp != "" {
		filter = ", with a filter on tags"
	}
	for _, rows := range s.Ranges {
		if s.Table != "tsdb-uid" {
			rows = store.Range{Start: bytes.Clone(rows.Start), Stop: bytes.Clone(rows.Stop)}
			r.calls = append(r.calls, func() string {
				return fmt.Sprintf("%s: scan %s%s", s.Table, r.span(s.Table, rows), filter)
			})
		}
	}
	return r.Store.Scan(ctx, s)
}

// span describes a range: all rows that begin with a key, one row, or those from one to another.
func (r *recorder) span(table string, rows store.Range) string {
	last, included := bytes.CutSuffix(rows.Stop, []byte{0}) // the first key behind last
	switch start := r.key(table, rows.Start); {
	case bytes.Equal(rows.Stop, store.PrefixEnd(rows.Start)):
		return "all of " + start
	case included && bytes.Equal(rows.Start, last):
		return start
	case included:
		return fmt.Sprintf("from %s to %s", start, r.key(table, last))
	default:
		return fmt.Sprintf("from %s to before %s", start, r.key(table, rows.Stop))
	}
}

// key writes a row key, or the beginning of one.
func (r *recorder) key(table string, key []byte) string {
	switch table {
	case "tsdb":
		return r.uids.FormatRowKey(key)
	case "tsdb-meta":
		return r.uids.FormatTSUID(key)
	}
	if text, ok := index.FormatKey(key, r.uids.FormatTSUID); ok {
		return text
	}
	text, _ := index.FormatKey(append(key[:len(key):len(key)], 0), func([]byte) string { return "" })
	return strings.TrimSuffix(text, ": ")
}
