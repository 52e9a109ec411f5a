package decode_test

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/decode"
	"github.com/promtsd/promtsd/mapping/exemplars"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/cellio"
	"github.com/promtsd/promtsd/store/storetest"
)

// now is 2026-11-22T10:00:30.500Z, in the hour of base.
const (
	base = 1795341600
	now  = base*1000 + 30_500
)

// dump writes all tables of a store.
func dump(t *testing.T, st store.Store, settings catalog.Settings) string {
	t.Helper()
	uids := storetest.Must(uid.New(uid.Config{Store: st, Table: settings.Tables.UID, Schema: settings.Schema}))
	defer uids.Close()
	tables, err := st.Tables(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, table := range tables {
		names = append(names, table.Name)
	}
	var out strings.Builder
	cells := 0
	d := decode.Decoder{Store: st, Settings: settings, UIDs: uids}
	if err := d.Dump(t.Context(), names, &out, func(n int) { cells = n }); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != cells {
		t.Errorf("%d lines of %d cells", n, cells)
	}
	return out.String()
}

// Each kind of row that promtsd writes, and rows that nobody knows, are told apart.
func TestDump_OfPromtsdsOwn(t *testing.T) {
	settings := catalog.Default()
	settings.Schema.SaltWidth = 1
	tables, st := settings.Tables, storetest.NewMem()
	for _, table := range []store.Table{
		{Name: tables.Data, Families: []string{"t"}}, {Name: tables.UID, Families: []string{"id", "name"}},
		{Name: tables.Meta, Families: []string{"name"}}, {Name: tables.System, Families: []string{"p"}}, tables.JournalTable(),
		tables.ExemplarTable(0), {Name: "zebra", Families: []string{"f"}},
	} {
		if err := st.CreateTable(t.Context(), table); err != nil {
			t.Fatal(err)
		}
	}
	uids := storetest.Must(uid.New(uid.Config{Store: st, Table: tables.UID, Schema: settings.Schema}))
	defer uids.Close()
	ids, err := uids.Assign(t.Context(), []uid.Name{
		{Kind: mapping.Metric, Text: "up"}, {Kind: mapping.Tagk, Text: "instance"}, {Kind: mapping.Tagv, Text: `a "b"`},
	})
	if err != nil {
		t.Fatal(err)
	}
	tsuid := settings.Schema.AppendTSUID(nil, ids[0].UID, []mapping.Tag{{Key: ids[1].UID, Value: ids[2].UID}})
	unnamed := settings.Schema.AppendTSUID(nil, 7, nil)

	var b store.Batch
	key := settings.Schema.AppendRowKey(nil, tsuid, base)
	points := mapping.AppendPoint(mapping.AppendPoint(nil, 15_000, 1), 30_000, 0.5)
	qualifier, value := mapping.AppendCell(nil, nil, points)
	b.Put(tables.Data, key, "t", qualifier, now, value)
	stored, err := (mapping.Histogram{Int: &histogram.Histogram{Schema: 3, Count: 2, Sum: 1.5,
		ZeroCount: 2}}).AppendStored(nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Put(tables.Data, key, "t", mapping.AppendHistogramQualifier(nil, 45_000), now, stored)
	b.Put(tables.Data, settings.Schema.AppendRowKey(nil, unnamed, base), "t", []byte{0, 0x10}, now, []byte{1})
	b.Put(tables.Data, []byte("odd"), "t", []byte("q"), now, []byte{0xff})
	index := index.Writer{Tables: tables}
	index.PutSeries(&b, tsuid, now)
	index.PutDay(&b, tsuid, 20779, now, nil)
	b.Put(tables.System, unhex(t, "6e 0123456789abcdef 0000000000000011"), "p", nil, now, []byte{0, 9})
	b.Put(tables.System, unhex(t, "71 0123456789abcdef 0000000000000011"), "p", []byte("about"), now,
		[]byte(`{"class":"damaged"}`))
	b.Put(tables.System, unhex(t, "77 0123456789abcdef"), "p", []byte("lease"), now, []byte(`{"beat":3}`))
	b.Put(tables.System, []byte("mup"), "p", nil, now, []byte(`{"type":"gauge"}`))
	b.Put(tables.System, []byte("settings"), "p", []byte("salt.width"), now, []byte("1"))
	new(exemplars.Writer).Put(&b, tables.Exemplars(), exemplars.NewRows(settings.Schema), tsuid, request.Exemplar{
		T: now, V: 2.5, Labels: request.AppendLabel(nil, "trace_id", "x1"),
	}, now)
	b.Put("zebra", []byte("row"), "f", []byte("q"), now, []byte("v"))
	if err := st.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	var log store.Batch
	log.Put(tables.Journal(), unhex(t, "0123456789abcdef 0000000000000011"), "p", nil, now, make([]byte, 300))
	if err := st.Apply(t.Context(), &log); err != nil {
		t.Fatal(err)
	}
	const series = `up{instance="a \"b\""}`
	want := []string{
		`promtsd active on 2026-11-22: ` + series + `: `,
		`promtsd metadata of "up": {"type":"gauge"}`,
		`promtsd change 17 of the index, by 0123456789abcdef: 0009`,
		`promtsd quarantined entry 17 of 0123456789abcdef about: {"class":"damaged"}`,
		`promtsd settings salt.width: 1`,
		`promtsd lease of 0123456789abcdef lease: {"beat":3}`,
		`promtsd-exemplars ` + series + `: 2.5 {trace_id="x1"} of 2026-11-22T10:00:30.500Z`,
		`promtsd-journal entry 17 of 0123456789abcdef: 300 bytes`,
		`tsdb ` + series + ` 2026-11-22T10:00:00Z salt 08: 45.000s={count:2, sum:1.5, [-0,0]:2}`,
		`tsdb ` + series + ` 2026-11-22T10:00:00Z salt 08: 15.000s=1 30.000s=0.5`,
		`tsdb metrics:7{} 2026-11-22T10:00:00Z salt 12: 1.000s=1`,
		`tsdb odd q: ff`,
		`tsdb-meta ` + series + ` ts_ctr: 0000000000000001`,
		`tsdb-uid metrics: last UID is 1`,
		`tsdb-uid tagk: last UID is 1`,
		`tsdb-uid tagv: last UID is 1`,
		`tsdb-uid metrics 000001 -> "up"`,
		`tsdb-uid tagk 000001 -> "instance"`,
		`tsdb-uid tagv 000001 -> "a \"b\""`,
		`tsdb-uid tagv "a \"b\"" -> 000001`,
		`tsdb-uid tagk "instance" -> 000001`,
		`tsdb-uid metrics "up" -> 000001`,
		`zebra row q: v`,
	}
	compare(t, dump(t, st, settings), want)
}

// Cells of OpenTSDB, of annotations and of its histograms.
func TestDump_OfOpenTSDB(t *testing.T) {
	settings := catalog.Default()
	settings.Tables.UID, settings.Tables.Meta = "uid", "meta"
	for set, want := range map[string][]string{
		"annotation": {`tsdb metrics:0{} 2013-01-01T00:00:00Z: annotation 010032: {"startTime":1356998450,"endTime":0,"description":"global sec",` +
			`"notes":"","custom":null}`},
		"histogram": {"2013-01-01T01:00:00Z: histogram of OpenTSDB 060000: 2a00010000000041200000f0a2040000"},
		"append":    {"2013-01-01T00:00:00Z: 0.000s="},
		"meta-full": {`tsdb meta.a{host="y", dc="lga"} 2013-01-01T02:00:00Z: 0.000s=2`, `uid metrics 000003 -> "re.named"`,
			`uid 000003 metric_meta: {"type":"METRIC"`, `meta meta.b{host="x"} ts_ctr: 0000000000000001`},
	} {
		file, err := os.Open(filepath.Join("..", "..", "testdata", "opentsdb", set, "cells.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		st := storetest.NewMem()
		if _, err := cellio.Load(t.Context(), st, file, nil); err != nil {
			t.Fatal(err)
		}
		got := dump(t, st, settings)
		for _, line := range want {
			if !strings.Contains(got, line) {
				t.Errorf("%s: no %s in\n%s", set, line, got)
			}
		}
	}
}

// compare holds lines, without the timestamps at their ends, against those that are wanted.
func compare(t *testing.T, got string, want []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
	for i := range max(len(lines), len(want)) {
		line, expected := "", ""
		if i < len(lines) {
			line = lines[i][:max(0, strings.LastIndex(lines[i], " @"))]
		}
		if i < len(want) {
			expected = want[i]
		}
		if line != expected {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, line, expected)
		}
	}
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}
