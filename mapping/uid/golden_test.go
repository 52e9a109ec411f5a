package uid_test

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/uid"
)

var allKinds = []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv}

// goldenTables reads the UID table that OpenTSDB left in each of its modes, and the widths it had.
func goldenTables(t *testing.T) map[string]golden {
	t.Helper()
	files, err := filepath.Glob("../../testdata/opentsdb/*/cells.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden cells: %v, %v", files, err)
	}
	tables := make(map[string]golden)
	for _, file := range files {
		g := golden{st: newFake(), schema: goldenSchema(t, filepath.Dir(file))}
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var c struct{ Table, Row, Family, Qualifier, Value string }
			if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if c.Table == "uid" {
				g.st.put(unhex(t, c.Row), c.Family, unhex(t, c.Qualifier), unhex(t, c.Value))
			}
		}
		if err := lines.Err(); err != nil {
			t.Fatal(err)
		}
		f.Close()
		tables[filepath.Base(filepath.Dir(file))] = g
	}
	return tables
}

type golden struct {
	st     *fake
	schema mapping.Schema
}

func goldenSchema(t *testing.T, dir string) mapping.Schema {
	t.Helper()
	settings, err := os.ReadFile(filepath.Join(dir, "config.txt"))
	if err != nil {
		t.Fatal(err)
	}
	s := mapping.DefaultSchema()
	for line := range strings.Lines(string(settings)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		width, _ := strconv.Atoi(value)
		switch key {
		case "tsd.storage.uid.width.metric":
			s.MetricWidth = width
		case "tsd.storage.uid.width.tagk":
			s.TagkWidth = width
		case "tsd.storage.uid.width.tagv":
			s.TagvWidth = width
		}
	}
	return s
}

func unhex(t *testing.T, s string) string {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// cellsOf are the cells of a family and kind, value by row, without the counters.
func (g golden) cellsOf(family string, kind mapping.Kind) map[string]string {
	cells := make(map[string]string)
	for a, value := range g.st.all() {
		if a.family == family && a.qualifier == kind.String() && a.row != "\x00" {
			cells[a.row] = value
		}
	}
	return cells
}

func TestOpenTSDBTablesAreRead(t *testing.T) {
	resolved := 0
	for mode, g := range goldenTables(t) {
		c := config(g.st)
		c.Schema = g.schema
		r := newRegistry(t, c)
		for _, kind := range allKinds {
			for stored, value := range g.cellsOf("id", kind) {
				want, err := g.schema.ParseUID(kind, []byte(value))
				if err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
				name := uid.Name{Kind: kind, Text: mapping.NamesRaw.Decode(stored)}
				if found := lookup(t, r, name)[0]; !slices.Contains(found, want) {
					t.Errorf("%s: Lookup(%v) = %d, want %d", mode, name, found, want)
				}
				resolved++
			}
			for row, stored := range g.cellsOf("name", kind) {
				value, err := g.schema.ParseUID(kind, []byte(row))
				if err != nil {
					t.Fatalf("%s: %v", mode, err)
				}
				want := uid.Text{Text: mapping.NamesRaw.Decode(stored), OK: true}
				wantEqual(t, mode+": Texts", texts(t, r, uid.ID{Kind: kind, UID: value})[0], want)
			}
		}
	}
	if resolved < 100 {
		t.Errorf("only %d names in the golden tables", resolved)
	}
}

// Where OpenTSDB's ids follow one another without a gap, assigning its names in the order of their ids on an empty
// table must leave its very cells. (Its names outside ASCII are ISO-8859-1, promtsd's are UTF-8.)
func TestOpenTSDBCellsAreWrittenAgain(t *testing.T) {
	replayed := 0
	for mode, g := range goldenTables(t) {
		var names []uid.Name
		plain := true
		for _, kind := range allKinds {
			byUID := make(map[string]string)
			for stored, value := range g.cellsOf("id", kind) {
				byUID[value] = stored
				plain = plain && !strings.ContainsFunc(stored, func(r rune) bool { return r > 0x7e })
			}
			plain = plain && int64(len(byUID)) == g.st.counter(kind.String())
			var uids []string
			for value := range byUID {
				uids = append(uids, value)
			}
			slices.Sort(uids)
			for _, value := range uids {
				names = append(names, uid.Name{Kind: kind, Text: byUID[value]})
			}
		}
		if !plain || len(names) == 0 {
			continue
		}
		want := make(map[address]string) // without UIDMeta and what else is not ours
		for a, value := range g.st.all() {
			if slices.Contains([]string{"metrics", "tagk", "tagv"}, a.qualifier) {
				want[a] = value
			}
		}
		st := newFake()
		c := config(st)
		c.Schema = g.schema
		assign(t, newRegistry(t, c), names...)
		wantEqual(t, mode+": cells", format(st.all()), format(want))
		replayed++
	}
	if replayed < 5 {
		t.Errorf("only %d golden tables could be replayed", replayed)
	}
	t.Logf("%d golden tables replayed", replayed)
}
