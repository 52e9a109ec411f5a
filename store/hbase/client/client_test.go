package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// The tests share one HBase, with leases so short that a test can outwait them.
var shared = hbasetest.Shared{Config: hbasetest.Config{
	Site: map[string]string{"hbase.client.scanner.timeout.period": "2000"},
	JVM:  []string{"-Xmx2g"}, // for the benchmarks, which otherwise measure how it flushes
}}

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// dial makes a client of the shared cluster, and checks at the end of the test that it leaves no goroutine behind.
func dial(t testing.TB, change func(*client.Config)) *client.Client {
	t.Helper()
	cluster := shared.Cluster(t)
	before := goleak.IgnoreCurrent()
	cfg := client.Config{ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()}
	if change != nil {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
	return c
}

// table makes a table with family f for one test.
func table(t testing.TB, c *client.Client, splits ...string) string {
	t.Helper()
	name := wire.ParseTableName(fmt.Sprintf("t%x", rand.Uint64()))
	keys := make([][]byte, len(splits))
	for i, s := range splits {
		keys[i] = []byte(s)
	}
	schema := wire.TableSchema{Name: name, Families: []wire.FamilySchema{{
		Name: "f", Attributes: []wire.Attribute{{Name: "VERSIONS", Value: "1"}},
	}}}
	if err := c.CreateTable(t.Context(), schema, keys); err != nil {
		t.Fatal(err)
	}
	return name.String()
}

// put writes n rows of one cell each.
func put(t testing.TB, c *client.Client, table string, from, to int) {
	t.Helper()
	b, err := c.NewBatch(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		b.Put(key(i), "f", []byte("q"), int64(1000+i), fmt.Append(nil, i))
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
}

func key(i int) []byte { return fmt.Appendf(nil, "%06d", i) }

// scan returns all rows as "row=cells" in short.
func scan(t testing.TB, c *client.Client, s client.Scan) []string {
	t.Helper()
	var rows []string
	for row, err := range c.Scan(t.Context(), s) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, text(row))
	}
	return rows
}

func text(row client.Row) string {
	s := string(row.Key) + ":"
	for _, cell := range row.Cells {
		s += fmt.Sprintf(" %s.%s@%d=%s", cell.Family, cell.Qualifier, cell.Timestamp, cell.Value)
	}
	return s
}

// wantRows are what put has written.
func wantRows(from, to int) (rows []string) {
	for i := from; i < to; i++ {
		rows = append(rows, fmt.Sprintf("%s: f.q@%d=%d", key(i), 1000+i, i))
	}
	return rows
}

func assertRows(t testing.TB, got, want []string) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Fatalf("row %d of %d: got %q, want %q (of %d)", i, len(got), got[i], want[i], len(want))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("got %d rows, want %d", len(got), len(want))
	}
}

func TestScan_YieldsWhatWasPutInOrder(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "000500", "001000", "002500")
	put(t, c, name, 0, 3000)
	for _, test := range []struct {
		name string
		scan client.Scan
		want []string
	}{
		{"all", client.Scan{}, wantRows(0, 3000)},
		{"small responses", client.Scan{Rows: 7}, wantRows(0, 3000)},
		{"range over regions", client.Scan{Start: key(400), Stop: key(1100)}, wantRows(400, 1100)},
		{"stop at a region's end", client.Scan{Start: key(499), Stop: key(500)}, wantRows(499, 500)},
		{"limit over regions", client.Scan{Start: key(499), Limit: 3}, wantRows(499, 502)},
		{"empty range", client.Scan{Start: key(7), Stop: key(7)}, nil},
		{"filter", client.Scan{Filter: wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex("^00.9{3}$")}},
			append(append(wantRows(999, 1000), wantRows(1999, 2000)...), wantRows(2999, 3000)...)},
		{"unknown qualifier", client.Scan{Columns: []client.Column{{Family: "f", Qualifier: []byte("x")}}}, nil},
		{"family", client.Scan{Columns: []client.Column{{Family: "f"}}, Stop: key(10)}, wantRows(0, 10)},
		{"time range", client.Scan{TimeRange: wire.TimeRange{From: 1100, To: 1102}}, wantRows(100, 102)},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.scan.Table = name
			assertRows(t, scan(t, c, test.scan), test.want)
		})
		t.Run(test.name+" reversed", func(t *testing.T) {
			test.scan.Table, test.scan.Reversed = name, true
			want := make([]string, len(test.want))
			for i, row := range test.want {
				want[len(want)-1-i] = row
			}
			if test.scan.Limit > 0 {
				want = []string{wantRows(2999, 3000)[0], wantRows(2998, 2999)[0], wantRows(2997, 2998)[0]}
			}
			assertRows(t, scan(t, c, test.scan), want)
		})
	}
}

func TestScan_JoinsRowsThatComeInParts(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "b")
	b, err := c.NewBatch(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range []string{"a", "b", "c"} {
		line := row + ":"
		for q := range 2000 {
			b.Put([]byte(row), "f", fmt.Appendf(nil, "%04d", q), 5, []byte("value"))
			line += fmt.Sprintf(" f.%04d@5=value", q)
		}
		want = append(want, line)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	assertRows(t, scan(t, c, client.Scan{Table: name, ResponseBytes: 5000}), want)
}

func TestScan_EndsEarly(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "000500")
	put(t, c, name, 0, 1000)
	n := 0
	for _, err := range c.Scan(t.Context(), client.Scan{Table: name, Rows: 10}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 25 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Scan(ctx, client.Scan{Table: name, Rows: 10}) {
		cancel()
		last = err
	}
	if !errors.Is(last, context.Canceled) || !errors.Is(last, client.ErrUnavailable) {
		t.Errorf("scan with a cancelled context ended with %v", last)
	}
}

func TestGet_YieldsRowsInOrder(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c, "001000", "002500")
	put(t, c, name, 0, 5000)
	var rows [][]byte
	var want []string
	for i := 0; i < 6000; i += 2 {
		rows = append(rows, key(i))
		if i < 5000 {
			want = append(want, wantRows(i, i+1)...)
		}
	}
	var got []string
	columns := []client.Column{{Family: "f"}}
	for row, err := range c.Get(t.Context(), client.Get{Table: name, Rows: rows, Columns: columns}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, text(row))
	}
	assertRows(t, got, want)
}

func TestBatch_DeletesAndGroups(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c)
	put(t, c, name, 0, 10)
	b, err := c.NewBatch(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 3; i < 6; i++ {
		b.Delete(key(i), "f", []byte("q"), int64(1000+i))
	}
	b.Put(key(20), "f", []byte("a"), 7, []byte("1"))
	b.Put(key(20), "f", []byte("b"), 7, nil)
	b.Delete(key(20), "f", []byte("c"), 7)
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	want := append(append(wantRows(0, 3), wantRows(6, 10)...), "000020: f.a@7=1 f.b@7=")
	assertRows(t, scan(t, c, client.Scan{Table: name}), want)
}

func TestErrors_SayWhatTheCallerCanDo(t *testing.T) {
	c := dial(t, nil)
	name := table(t, c)
	write := func(table, family string, ts int64) error {
		b, err := c.NewBatch(t.Context(), table)
		if err != nil {
			return err
		}
		b.Put([]byte("row"), family, nil, ts, nil)
		return b.Flush()
	}
	first := func(table string, filter wire.Filter) error {
		for _, err := range c.Scan(t.Context(), client.Scan{Table: table, Filter: filter}) {
			return err
		}
		return nil
	}
	disabled := name + "x"
	if err := c.CreateTable(t.Context(), wire.TableSchema{
		Name: wire.ParseTableName(disabled), Families: []wire.FamilySchema{{Name: "f"}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	if err := write(disabled, "f", 1); err != nil { // so that the client knows its region
		t.Fatal(err)
	}
	if err := c.DisableTable(t.Context(), disabled); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		err  error
		want error
	}{
		{"no table", write("nosuch", "f", 1), client.ErrNoTable},
		{"no family", write(name, "nosuch", 1), client.ErrNoFamily},
		{"no timestamp", write(name, "f", 0), client.ErrInvalid},
		{"disabled", write(disabled, "f", 1), client.ErrTableDisabled},
		{"scan of no table", first("nosuch", nil), client.ErrNoTable},
		{"scan of disabled", first(disabled, nil), client.ErrTableDisabled},
		{"table exists", c.CreateTable(t.Context(), wire.TableSchema{
			Name: wire.ParseTableName(name), Families: []wire.FamilySchema{{Name: "f"}}}, nil), client.ErrTableExists},
		{"bad pattern", first(name, wire.RowFilter{Op: wire.Equal, Comparator: wire.Regex("(")}), client.ErrRejected},
	} {
		if !errors.Is(test.err, test.want) {
			t.Errorf("%s: got error %v, want %v", test.name, test.err, test.want)
		}
		if client.MayHaveApplied(test.err) {
			t.Errorf("%s: error says that it may have been applied: %v", test.name, test.err)
		}
	}
}
