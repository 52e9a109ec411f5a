package promstore_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/teststorage"

	"github.com/promtsd/promtsd/query/promstore"
)

const (
	// unsupportedFile lists the evaluations of Prometheus's built-in tests that cannot pass, one a line: file:line, and
	// the expression as testing spells it. The comment before a group of them says why.
	unsupportedFile = "testdata/unsupported.txt"

	// childStorage is set in the child process, to the storage it shall use.
	childStorage = "PROMTSD_TEST_BUILTIN_STORAGE"
)

var rewrite = flag.Bool("rewrite", false, "write "+unsupportedFile+" anew")

// handicaps are what promtsd does not store. The evaluations that cannot pass without it are those that fail on
// Prometheus's own TSDB, too, when it is not given it: so the list is written, and so it is proved that an evaluation
// is on it for no other reason.
var handicaps = []handicap{
	{startTimestamps: true, reason: "start timestamps of samples are not stored: the schema has no place for them"},
}

// storages are what the built-in tests can be run on, by name.
var storages = map[string]func(testing.TB) storage.Storage{
	"memory": func(t testing.TB) storage.Storage { return newDatabase(t, stores["memory"](t)) },
	"pebble": func(t testing.TB) storage.Storage { return newDatabase(t, stores["pebble"](t)) },
	"hbase":  func(t testing.TB) storage.Storage { return newDatabase(t, stores["hbase"](t)) },

	handicaps[0].reason: func(t testing.TB) storage.Storage { return withHandicap{newTSDB(t), handicaps[0]} },
}

// newTSDB is the storage that promqltest.RunBuiltinTests uses.
func newTSDB(t testing.TB) storage.Storage {
	return teststorage.New(t, func(opt *tsdb.Options) {
		opt.EnableSTStorage = true
		opt.FloatChunkEncoding = chunkenc.EncXOR2
		opt.EnableHistogramSTEncoding = true
	})
}

// The evaluations that fail are exactly those listed: one that begins to pass has to leave the list. Each evaluation
// is a subtest, and a failing subtest cannot be taken back; so they run in a child process.
func TestPromQL_PassesPrometheusBuiltinTests(t *testing.T) {
	if *rewrite {
		writeUnsupported(t)
	}
	for _, name := range []string{"memory", "pebble", "hbase"} {
		t.Run(name, func(t *testing.T) {
			if name == "hbase" {
				if testing.Short() {
					t.Skip("takes minutes, and the others run the same code above the store")
				}
				startHBase(t)
			}
			failed, output := runBuiltinTests(t, name)
			listed := readUnsupported(t)
			for _, evaluation := range failed {
				if !listed[evaluation] {
					t.Errorf("fails: %s", evaluation)
				}
				delete(listed, evaluation)
			}
			if t.Failed() {
				t.Logf("output:\n%s", output)
			}
			for evaluation := range listed {
				t.Errorf("passes, or is gone; take it out of %s: %s", unsupportedFile, evaluation)
			}
		})
	}
}

// failedEvaluation is the line that testing prints of a failed evaluation.
var failedEvaluation = regexp.MustCompile(
	`(?m)^ *--- FAIL: TestPromQL_Child/testdata/(\w+\.test)/line_(\d+)/(.*) \([0-9.]+s\)$`)

// runBuiltinTests runs all built-in tests in a child process and returns the evaluations that failed.
func runBuiltinTests(t *testing.T, name string) (failed []string, output []byte) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPromQL_Child$")
	cmd.Env = append(os.Environ(), childStorage+"="+name)
	output, err := cmd.CombinedOutput()
	for _, m := range failedEvaluation.FindAllSubmatch(output, -1) {
		failed = append(failed, fmt.Sprintf("%s:%s %s", m[1], m[2], m[3]))
	}
	if err != nil && len(failed) == 0 {
		t.Fatalf("run the built-in tests: %v\n%s", err, output)
	}
	return failed, output
}

func TestPromQL_Child(t *testing.T) {
	newStorage := storages[os.Getenv(childStorage)]
	if newStorage == nil {
		t.Skip("is run by TestPromQL_PassesPrometheusBuiltinTests")
	}
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	promqltest.RunBuiltinTestsWithStorage(t, promstore.Engine{QueryEngine: engine}, newStorage)
}

// handicap is what is kept from a storage.
type handicap struct {
	histograms, startTimestamps bool
	reason                      string
}

type withHandicap struct {
	storage.Storage
	handicap
}

func (s withHandicap) AppenderV2(ctx context.Context) storage.AppenderV2 {
	return handicappedAppender{s.Storage.AppenderV2(ctx), s.handicap}
}

type handicappedAppender struct {
	storage.AppenderV2
	handicap
}

func (a handicappedAppender) Append(
	ref storage.SeriesRef, ls labels.Labels, st, t int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram,
	opts storage.AppendV2Options,
) (storage.SeriesRef, error) {
	if a.histograms && (h != nil || fh != nil) {
		return ref, nil
	}
	if a.startTimestamps {
		st = 0
	}
	return a.AppenderV2.Append(ref, ls, st, t, v, h, fh, opts)
}

func readUnsupported(t *testing.T) map[string]bool {
	content, err := os.ReadFile(unsupportedFile)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			listed[line] = true
		}
	}
	return listed
}

func writeUnsupported(t *testing.T) {
	var b strings.Builder
	b.WriteString("# Evaluations of Prometheus's built-in PromQL tests that cannot pass, by reason. Written by\n" +
		"# go test ./query/promstore -run BuiltinTests -rewrite\n")
	for _, h := range handicaps {
		failed, _ := runBuiltinTests(t, h.reason)
		fmt.Fprintf(&b, "\n# %s\n%s\n", h.reason, strings.Join(failed, "\n"))
	}
	if err := os.WriteFile(unsupportedFile, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
