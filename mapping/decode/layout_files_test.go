package decode_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/decode"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

// The files say which cells samples become. Their commands:
//
//	store [SETTING=VALUE]...
//	    an empty store; salt.buckets=3, say
//
//	write
//	SERIES TIME VALUE
//	    samples, one a line, in write-through mode
//
//	dump TABLE...
//	    the cells of tables; of promtsd's own, those of the index
//
// -rewrite writes the files anew; then the difference is to be read.
func TestLayouts(t *testing.T) {
	datadriven.Walk(t, "testdata/layouts", func(t *testing.T, path string) {
		var st store.Store
		var settings catalog.Settings
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "store":
				asked := map[string]string{}
				for _, arg := range d.CmdArgs {
					asked[arg.Key] = arg.Vals[0]
				}
				st = storetest.NewMem()
				var err error
				if settings, _, err = catalog.Init(t.Context(), st, "promtsd", asked); err != nil {
					d.Fatalf(t, "%v", err)
				}
			case "write":
				writeLines(t, st, settings, d)
			case "dump":
				uids := storetest.Must(uid.New(uid.Config{Store: st, Table: settings.Tables.UID, Schema: settings.Schema}))
				defer uids.Close()
				var out strings.Builder
				var tables []string
				for _, arg := range d.CmdArgs {
					tables = append(tables, arg.Key)
				}
				decoder := decode.Decoder{Store: st, Settings: settings, UIDs: uids}
				if err := decoder.Dump(t.Context(), tables, &out, nil); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return stable(out.String())
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return ""
		})
	})
}

// stable is a dump without what is different each time: the rows of promtsd's own table that are none of the index, and
// the timestamps of cells that were written by the machine's clock.
func stable(dump string) string {
	var out strings.Builder
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "promtsd ") && !strings.HasPrefix(line, "promtsd active on ") {
			continue
		}
		text, at, _ := strings.Cut(strings.TrimSpace(line), " @")
		out.WriteString(strings.TrimSpace(text))
		if strings.HasPrefix(at, "2026-11-22T10:00:30.") {
			out.WriteString(" @" + at)
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func writeLines(t *testing.T, st store.Store, settings catalog.Settings, d *datadriven.TestData) {
	uids := storetest.Must(uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
	}))
	defer uids.Close()
	appender := storetest.Must(ingest.New(ingest.Config{
		Store: st, Settings: settings, UIDs: uids, CacheSize: 100,
		Limits: ingest.Limits{Labels: 100, LabelName: 1000, LabelValue: 1000},
		Now:    func() time.Time { return time.UnixMilli(now) },
	}))
	for line := range strings.Lines(d.Input) {
		fields := strings.Fields(line)
		ls, err := parser.NewParser(parser.Options{}).ParseMetric(fields[0])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		at, err := time.Parse("2006-01-02T15:04:05.999", fields[1])
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		value, err := strconv.ParseFloat(fields[2], 64)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		var raw []byte
		ls.Range(func(l labels.Label) { raw = request.AppendLabel(raw, l.Name, l.Value) })
		result, err := appender.Append(t.Context(), &request.Write{
			Series:  []request.Series{{Labels: raw, To: 1}},
			Samples: []request.Sample{{T: at.UnixMilli(), V: value}},
		})
		if err != nil || result.Written != 1 {
			d.Fatalf(t, "write %s: %+v, %v", line, result, err)
		}
	}
}
