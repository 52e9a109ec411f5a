package mapping_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/mapping"
)

// The golden sets are what a real OpenTSDB was sent, stored and answered; see testdata/opentsdb/README.md.

const goldenDir = "../testdata/opentsdb"

// goldenSet is one run of OpenTSDB under one configuration.
type goldenSet struct {
	name    string
	schema  mapping.Schema
	dumps   map[string]*goldenTables // by file name; "input" is what input.txt put straight into HBase
	queries []goldenQuery
	input   []string // the lines of input.txt
}

// goldenCell is a cell of a dump.
type goldenCell struct {
	Table     string   `json:"table"`
	Row       hexBytes `json:"row"`
	Family    string   `json:"family"`
	Qualifier hexBytes `json:"qualifier"`
	Timestamp int64    `json:"timestamp"`
	Value     hexBytes `json:"value"`
}

type hexBytes []byte

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

// goldenTables are the data and the UID table of a dump.
type goldenTables struct {
	rows  []string                // row keys of the data table, sorted
	cells map[string][]goldenCell // by row key
	ids   map[nameKey][]byte      // UIDs by stored name
	names map[nameKey]string      // stored names by UID
}

// nameKey is a kind and a stored name, or a kind and the bytes of a UID.
type nameKey struct {
	kind mapping.Kind
	name string
}

// goldenQuery is a query and its answer.
type goldenQuery struct {
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Request json.RawMessage `json:"request"`
	Status  int             `json:"status"`
	Text    string          `json:"response_text"`
}

func goldenSets(t *testing.T) []*goldenSet {
	t.Helper()
	entries, err := os.ReadDir(goldenDir)
	if err != nil {
		t.Fatal(err)
	}
	var sets []*goldenSet
	for _, e := range entries {
		if e.IsDir() {
			sets = append(sets, readGoldenSet(t, e.Name()))
		}
	}
	if len(sets) == 0 {
		t.Fatal("no golden sets")
	}
	return sets
}

func readGoldenSet(t *testing.T, name string) *goldenSet {
	t.Helper()
	dir := filepath.Join(goldenDir, name)
	set := &goldenSet{
		name:   name,
		schema: goldenSchema(t, readLines(t, filepath.Join(dir, "config.txt"))),
		dumps:  map[string]*goldenTables{},
		input:  readLines(t, filepath.Join(dir, "input.txt")),
	}
	queries, err := os.ReadFile(filepath.Join(dir, "query.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(queries, &set.queries); err != nil {
		t.Fatalf("%s: query.json: %v", name, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "cells*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no cells: %v", name, err)
	}
	for _, f := range files {
		set.dumps[filepath.Base(f)] = newGoldenTables(t, readLines(t, f))
	}
	var raw []string
	for _, line := range set.input {
		if cell, ok := strings.CutPrefix(line, "R "); ok {
			raw = append(raw, cell)
		}
	}
	set.dumps["input"] = newGoldenTables(t, raw)
	return set
}

func readLines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	if err := s.Err(); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return lines
}

func goldenSchema(t *testing.T, config []string) mapping.Schema {
	t.Helper()
	s := mapping.DefaultSchema()
	settings := map[string]*int{
		"tsd.storage.uid.width.metric": &s.MetricWidth,
		"tsd.storage.uid.width.tagk":   &s.TagkWidth,
		"tsd.storage.uid.width.tagv":   &s.TagvWidth,
		"tsd.storage.salt.width":       &s.SaltWidth,
		"tsd.storage.salt.buckets":     &s.SaltBuckets,
	}
	for _, line := range config {
		key, value, _ := strings.Cut(line, "=")
		if field := settings[key]; field != nil {
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				t.Fatalf("setting %q: %v", line, err)
			}
			*field = n
		}
	}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	return s
}

func newGoldenTables(t *testing.T, lines []string) *goldenTables {
	t.Helper()
	tables := &goldenTables{
		cells: map[string][]goldenCell{},
		ids:   map[nameKey][]byte{},
		names: map[nameKey]string{},
	}
	for _, line := range lines {
		var c goldenCell
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("cell %s: %v", line, err)
		}
		switch c.Table {
		case "tsdb":
			tables.cells[string(c.Row)] = append(tables.cells[string(c.Row)], c)
		case "uid":
			tables.addName(c)
		}
	}
	for row := range tables.cells {
		tables.rows = append(tables.rows, row)
	}
	slices.Sort(tables.rows)
	return tables
}

func (g *goldenTables) addName(c goldenCell) {
	for _, kind := range []mapping.Kind{mapping.Metric, mapping.Tagk, mapping.Tagv} {
		switch {
		case string(c.Qualifier) != kind.String() || string(c.Row) == "\x00":
		case c.Family == "id":
			g.ids[nameKey{kind, string(c.Row)}] = c.Value
		case c.Family == "name":
			g.names[nameKey{kind, string(c.Row)}] = string(c.Value)
		}
	}
}

// id finds the UID of a label under any of its spellings.
func (g *goldenTables) id(kind mapping.Kind, label string) ([]byte, bool) {
	for _, stored := range mapping.NamesRaw.Variants(label) {
		if id, ok := g.ids[nameKey{kind, stored}]; ok {
			return id, true
		}
	}
	return nil, false
}

// label is the label of a UID.
func (g *goldenTables) label(kind mapping.Kind, id []byte) (string, bool) {
	stored, ok := g.names[nameKey{kind, string(id)}]
	return mapping.NamesRaw.Decode(stored), ok
}
