package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modulePath = "github.com/promtsd/promtsd"

// mayImport says which packages of the module each package may import; design.md says why. Imports go downward only: a
// package that seems to need one above it holds code that belongs there. A package that is not listed may not exist.
var mayImport = map[string][]string{
	"cmd/promtsd": {
		"adapter", "adapter/api", "adapter/bounds", "adapter/fair", "adapter/peer", "adapter/wire", "query", "query/budget",
		"query/promstore",
		"mapping", "mapping/catalog", "mapping/decode", "mapping/families", "mapping/index", "mapping/ingest",
		"mapping/journal", "mapping/pack", "mapping/retention",
		"mapping/uid",
		"store", "store/cellio", "store/instrument", "store/pebble", "store/hbase", "store/hbase/client",
		"store/metricset",
	},
	"cmd/promtsd/promtest":   {"store/hbase/hbasetest", "store/storetest/child"},
	"cmd/promtsd/remotetest": {"mapping", "mapping/request"},

	// Tests of whole programs.
	"cmd/promtsd/e2e/bench":      {"adapter", "adapter/wire", "mapping", "query"},
	"cmd/promtsd/e2e/crash":      {"cmd/promtsd/e2e/crowd"},
	"cmd/promtsd/e2e/crowd":      {"cmd/promtsd/promtest", "cmd/promtsd/remotetest", "mapping/request"},
	"cmd/promtsd/e2e/faults":     {"cmd/promtsd/e2e/crowd"},
	"cmd/promtsd/e2e/hbase":      {"adapter/peer", "cmd/promtsd/e2e/crowd", "mapping"},
	"cmd/promtsd/e2e/opentsdb":   {"mapping"},
	"cmd/promtsd/e2e/prometheus": {"mapping"},
	"cmd/promtsd/e2e/stress":     {},
	"cmd/promtsd/e2e/torture":    {},

	"adapter": {
		"adapter/bounds", "adapter/fair", "adapter/wire", "query", "query/budget", "mapping", "mapping/request",
		"store", "store/metricset",
	},
	"adapter/bounds": {},
	"adapter/fair":   {},
	"adapter/wire":   {"adapter/bounds", "mapping", "mapping/request"},
	"adapter/peer":   {},
	"adapter/api": {
		"adapter/bounds", "adapter/fair", "mapping", "mapping/request", "query", "query/budget", "query/promstore",
		"store",
	},

	"query/promstore": {"mapping", "mapping/request", "query", "query/budget"},
	"query/querytest": {
		"mapping/catalog", "mapping/index", "mapping/ingest", "mapping/uid", "query", "store", "store/storetest",
	},
	"query/budget": {"store/metricset"},

	"query": {
		"query/budget", "mapping", "mapping/request", "mapping/catalog", "mapping/exemplars", "mapping/index",
		"mapping/index/postings", "mapping/uid", "store", "store/metricset",
	},

	"mapping/ingest": {
		"mapping", "mapping/catalog", "mapping/exemplars", "mapping/families", "mapping/index",
		"mapping/ingest/memtable", "mapping/ingest/recovery", "mapping/ingest/rowmerge", "mapping/ingest/seriescache",
		"mapping/journal", "mapping/request", "mapping/uid", "store", "store/metricset",
	},
	"mapping/ingest/memtable":    {"mapping", "mapping/request"},
	"mapping/ingest/recovery":    {"mapping", "mapping/journal", "store"},
	"mapping/ingest/rowmerge":    {"mapping", "mapping/catalog", "mapping/ingest/memtable", "store"},
	"mapping/ingest/seriescache": {"mapping/clockcache", "mapping/ingest/memtable", "mapping/request"},
	"mapping/journal":            {"mapping", "mapping/catalog", "store", "store/metricset"},
	"mapping/pack":               {"mapping"},

	"mapping/decode": {
		"mapping", "mapping/request", "mapping/catalog", "mapping/exemplars", "mapping/families", "mapping/index",
		"mapping/journal",
		"mapping/uid", "store",
	},
	"mapping/retention": {"mapping", "mapping/catalog", "mapping/exemplars", "mapping/index", "store"},
	"mapping/exemplars": {"mapping", "mapping/request", "mapping/catalog", "store"},
	"mapping/families":  {"mapping", "mapping/request", "mapping/catalog", "store"},
	"mapping/catalog":   {"mapping", "store"},
	"mapping/index": {
		"mapping", "mapping/catalog", "mapping/index/feed", "mapping/index/postings", "mapping/uid", "store",
		"store/metricset",
	},
	"mapping/index/postings": {"mapping"},
	"mapping/index/feed":     {"mapping", "mapping/catalog", "store"},
	"mapping/uid":            {"mapping", "mapping/clockcache", "store", "store/metricset"},
	"mapping/request":        {"mapping"},
	"mapping":                {},
	"mapping/clockcache":     {},

	"store/pebble":            {"store", "store/metricset"},
	"store/pebble/pebbletest": {"store/pebble"},
	"store/storetest":         {"store"},
	"store/storetest/child":   {},
	"store/cellio":            {"store"},
	"store/instrument":        {"store", "store/metricset"},
	"store/metricset":         {},

	"store/hbase/wire":      {},
	"store/hbase/rpc":       {"store/hbase/wire"},
	"store/hbase/client":    {"store/hbase/rpc", "store/hbase/wire"},
	"store/hbase":           {"store", "store/hbase/client", "store/hbase/wire", "store/metricset"},
	"store/hbase/hbasetest": {"store/storetest/child"},
	"store":                 {},
}

// testsMayImport is what any package's test files may import besides: real stores, the harness, and the write path with
// what it needs, which fills a store for the tests of the read path.
var testsMayImport = []string{
	"store/pebble", "store/hbase", "store/hbase/client", "store/storetest", "store/storetest/child",
	"cmd/promtsd/promtest", "cmd/promtsd/remotetest",
	"mapping/ingest",
	"query/querytest", "store/cellio", "store/pebble/pebbletest", "store/hbase/hbasetest",
	"mapping/catalog", "mapping/exemplars", "mapping/families", "mapping/index", "mapping/pack", "mapping/request",
	"mapping/uid", "store",
}

// listedPackage is what go list -json says of a package.
type listedPackage struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func TestImports_GoDownward(t *testing.T) {
	for _, problem := range importProblems(listPackages(t)) {
		t.Error(problem)
	}
}

func TestImportProblems_NamesEdgeAndWhatToDo(t *testing.T) {
	// The module as the table allows it, which the cases then spoil.
	sound := func() map[string]*listedPackage {
		packages := map[string]*listedPackage{}
		for path := range mayImport {
			packages[path] = &listedPackage{ImportPath: modulePath + "/" + path, Imports: []string{"fmt"}}
		}
		return packages
	}
	for _, c := range []struct {
		name  string
		spoil func(packages map[string]*listedPackage)
		want  string // a part of the only problem; none if empty
	}{
		{"sound", func(map[string]*listedPackage) {}, ""},
		{"upward", func(p map[string]*listedPackage) {
			p["store"].Imports = append(p["store"].Imports, modulePath+"/mapping")
		}, "store imports mapping"},
		{"engine outside cmd", func(p map[string]*listedPackage) {
			p["query"].Imports = append(p["query"].Imports, modulePath+"/store/pebble")
		}, "query imports store/pebble"},
		{"engine in a test", func(p map[string]*listedPackage) {
			p["query"].XTestImports = []string{modulePath + "/store/pebble", modulePath + "/query"}
		}, ""},
		{"upward in a test", func(p map[string]*listedPackage) {
			p["mapping"].TestImports = []string{modulePath + "/adapter"}
		}, "a test of mapping imports adapter"},
		{"unknown package", func(p map[string]*listedPackage) {
			p["utils"] = &listedPackage{ImportPath: modulePath + "/utils"}
		}, "utils is not listed"},
		{"package gone", func(p map[string]*listedPackage) { delete(p, "adapter/wire") }, "adapter/wire is listed"},
		{"other module of like name", func(p map[string]*listedPackage) {
			p["store"].Imports = []string{modulePath + "-tools/x"}
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			packages := sound()
			c.spoil(packages)
			var list []listedPackage
			for _, p := range packages {
				list = append(list, *p)
			}
			got := importProblems(list)
			if c.want == "" && len(got) == 0 {
				return
			}
			if c.want == "" || len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// importProblems holds the module's packages against the tables and says of each violation what to do.
func importProblems(packages []listedPackage) []string {
	const mend = "move the code to the package that may know both, or, if the design has changed, " +
		"change the tables in cmd/promtsd/imports_test.go and design.md together"
	var problems []string
	unseen := maps.Clone(mayImport)
	for _, p := range packages {
		path, _ := ownPath(p.ImportPath)
		allowed, known := mayImport[path]
		if !known {
			problems = append(problems, fmt.Sprintf("package %s is not listed: put it where it belongs, or give it a row "+
				"in mayImport of cmd/promtsd/imports_test.go that says what it may import", path))
			continue
		}
		delete(unseen, path)
		check := func(who string, imports, allowed []string) {
			for _, imported := range imports {
				if to, ours := ownPath(imported); ours && to != path && !slices.Contains(allowed, to) {
					problems = append(problems, fmt.Sprintf("%s imports %s, which it may not: %s", who, to, mend))
				}
			}
		}
		check(path, p.Imports, allowed)
		check("a test of "+path, slices.Concat(p.TestImports, p.XTestImports), slices.Concat(allowed, testsMayImport))
	}
	for path := range unseen {
		problems = append(problems, fmt.Sprintf("package %s is listed but does not exist: take its row out "+
			"of mayImport in cmd/promtsd/imports_test.go", path))
	}
	slices.Sort(problems)
	return problems
}

// ownPath returns the path within the module of one of its packages.
func ownPath(importPath string) (path string, ours bool) {
	if importPath == modulePath {
		return ".", true
	}
	return strings.CutPrefix(importPath, modulePath+"/")
}

// listPackages lists all packages of the module.
func listPackages(t *testing.T) []listedPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", modulePath+"/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("list the module's packages: %v\n%s", err, &stderr)
	}
	var packages []listedPackage
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listedPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return packages
		}
		if err != nil {
			t.Fatalf("parse the list of packages: %v", err)
		}
		packages = append(packages, p)
	}
}
