package rowmerge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/ingest/memtable"
	"github.com/promtsd/promtsd/mapping/ingest/rowmerge"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/storetest"
)

const base = 1795251600 // an hour of 2026-11-21

// noIndex is told of index rows that are missing, which are no business of a merger.
type noIndex struct{}

func (noIndex) IndexMissing(*memtable.Series, mapping.Day) {}

// TestMerger runs testdata/*. The clock stands at the time of a command, in minutes after the base time; a sample is
// minute=value. Commands:
//
//	append at=M S minute=value ...   buffers samples of series S
//	flush at=M                       stores what is buffered, and shows the mutations of each batch
//	damage S                         makes the cells of S's row unreadable
func TestMerger(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		schema := mapping.Schema{MetricWidth: 3, TagkWidth: 3, TagvWidth: 3}
		st := storetest.NewMem()
		if err := st.CreateTable(t.Context(), store.Table{Name: "tsdb", Families: []string{"t"}}); err != nil {
			t.Fatal(err)
		}
		table := memtable.New(memtable.Config{Schema: schema, Merge: true, MaxBytes: 1 << 30})
		var out strings.Builder
		m := rowmerge.New(rowmerge.Config{Store: st, Schema: schema, Table: "tsdb", Unreadable: func(row []byte, err error) {
			fmt.Fprintf(&out, "unreadable: series %d: corrupt %v\n", row[len(row)-1], errors.Is(err, mapping.ErrCorrupt))
		}})
		all := map[string]*memtable.Series{}
		series := func(name string) *memtable.Series {
			if all[name] == nil {
				tsuid := "\x00\x00\x01\x00\x00\x01\x00\x00" + string(rune(name[0]-'a'+1))
				all[name] = table.Retain(table.NewSeries(table.NextSlot(memtable.Slot{}), tsuid, false))
			}
			return all[name]
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out.Reset()
			var at int64
			if d.HasArg("at") {
				d.ScanArgs(t, "at", &at)
			}
			switch d.Cmd {
			case "append":
				w := table.NewWriter(memtable.Arrival{
					Time: (base + at*60) * 1000, Entry: 1, Admission: request.Admission{Latest: mapping.MaxTime},
				}, noIndex{})
				var samples []request.Sample
				for _, arg := range d.CmdArgs[2:] {
					var minute, value int64
					if _, err := fmt.Sscan(arg.Key+" "+arg.Vals[0], &minute, &value); err != nil {
						d.Fatalf(t, "%s: %v", arg, err)
					}
					samples = append(samples, request.Sample{T: (base + minute*60) * 1000, V: float64(value)})
				}
				w.Append(memtable.Slot{}, series(d.CmdArgs[1].Key), samples)
				if n := w.Close(); n > 0 {
					fmt.Fprintf(&out, "%d duplicates\n", n)
				}
			case "flush":
				f := table.NewFlush()
				for shard := range memtable.Shards {
					f.Begin(shard)
					for rows, _ := f.Take(base + at*60); len(rows) > 0; rows, _ = f.Take(base + at*60) {
						var b store.Batch
						stats, err := m.AppendRows(t.Context(), rows, &b)
						if err == nil {
							err = st.Apply(t.Context(), &b)
						}
						if err != nil {
							t.Fatal(err)
						}
						show(&out, &b)
						fmt.Fprintf(&out, "%d cells, %d merged\n", stats.Cells, stats.Merged)
						f.Commit()
					}
					f.End()
				}
				if table.OldestBase() == base {
					out.WriteString("samples are left\n")
				}
			case "damage":
				key := schema.AppendRowKey(nil, []byte(series(d.CmdArgs[0].Key).TSUID()), base)
				var b store.Batch
				b.Put("tsdb", key, "t", []byte{0xf0, 0, 0, 7}, 1, []byte{1, 2, 3}) // 3 bytes where 8 should be
				if err := st.Apply(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return out.String()
		})
	})
}

// show shows the mutations of a batch: the minutes of a cell's points, and its cell timestamp in minutes.
func show(out *strings.Builder, b *store.Batch) {
	for i := range b.Len() {
		c := b.At(i)
		verb := "put"
		if c.Delete {
			verb = "delete"
		}
		fmt.Fprintf(out, "%s %c [", verb, 'a'+c.Row[len(c.Row)-1]-1)
		for q := c.Qualifier; len(q) > 0; {
			offset, _, width, err := mapping.ParseQualifier(q)
			if err != nil {
				break
			}
			if len(q) != len(c.Qualifier) {
				out.WriteByte(' ')
			}
			fmt.Fprint(out, offset/60_000)
			q = q[width:]
		}
		fmt.Fprintf(out, "] at %d\n", (c.Timestamp/1000-base)/60)
	}
}
