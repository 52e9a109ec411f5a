package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// sharedHBase is the cluster of the tests that do no harm to it.
var sharedHBase hbasetest.Shared

// hbaseTables are tables of one test in the shared HBase: their names begin with its own.
type hbaseTables struct {
	cluster *hbasetest.Cluster
	name    string
}

func newHBaseTables(t *testing.T, name string) hbaseTables {
	t.Helper()
	return hbaseTables{sharedHBase.Cluster(t), name}
}

func (h hbaseTables) data() string { return h.name }
func (h hbaseTables) uid() string  { return h.name + "-uid" }
func (h hbaseTables) meta() string { return h.name + "-meta" }
func (h hbaseTables) own() string  { return h.name + "-own" }
func (h hbaseTables) log() string  { return h.own() + "-journal" }
func (h hbaseTables) seen() string { return h.own() + "-exemplars" }
func (h hbaseTables) url() string  { return "hbase://" + h.cluster.ZK() + h.cluster.ZNode() }

// command runs a subcommand of promtsd on the tables and returns what it wrote.
func (h hbaseTables) command(t *testing.T, args ...string) string {
	t.Helper()
	cmd := promtest.PromtsdCommand(t, append(args, "--store.url="+h.url(), "--table.promtsd="+h.own())...)
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("promtsd %s: %v\n%s", args, err, exit.Stderr)
	}
	if err != nil {
		t.Fatalf("promtsd %s: %v", args, err)
	}
	return string(out)
}

// init runs promtsd init, and returns its first lines, which are about the tables.
func (h hbaseTables) init(t *testing.T, flags ...string) string {
	t.Helper()
	names := []string{"--table.data=" + h.data(), "--table.uid=" + h.uid(), "--table.meta=" + h.meta()}
	out := h.command(t, slices.Concat([]string{"init"}, names, flags)...)
	return strings.Join(strings.SplitAfter(out, "\n")[:6], "")
}

// initSaid is what init returns: the state of each table, as they are listed. promtsd's own three are made together.
func (h hbaseTables) initSaid(data, uid, meta, own string) string {
	return fmt.Sprintf("table %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\ntable %s: %s\n",
		h.data(), data, h.uid(), uid, h.meta(), meta, h.own(), own, h.log(), own, h.seen(), own)
}

// serve starts a promtsd on the tables, with some more flags.
func (h hbaseTables) serve(t *testing.T, flags ...string) *promtest.Process {
	t.Helper()
	return promtest.StartPromtsd(t, promtest.PromtsdConfig{
		StoreURL: h.url(), Args: append([]string{"--table.promtsd=" + h.own()}, flags...),
	})
}

// flush has promtsd store all that it holds, as it does when it ends.
func flush(t *testing.T, promtsd *promtest.Process) {
	t.Helper()
	promtsd.Stop()
	promtsd.Restart()
}

// admin is a client of the shared HBase.
func (h hbaseTables) admin(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{ZooKeeper: []string{h.cluster.ZK()}, ZNode: h.cluster.ZNode()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// describe tells all about a table: how its families are made, by the attributes that are named, and where its regions
// begin.
func describe(t *testing.T, c *client.Client, table string, attributes ...string) string {
	t.Helper()
	schema, err := c.Describe(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range schema.Families {
		fmt.Fprintf(&b, "%s:", f.Name)
		for _, a := range attributes {
			value, _ := f.Attribute(a)
			fmt.Fprintf(&b, " %s=%s", a, value)
		}
		fmt.Fprint(&b, "; ")
	}
	regions, err := c.Regions(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&b, "regions begin at")
	for _, r := range regions {
		fmt.Fprintf(&b, " %q", hex.EncodeToString(r.Start))
	}
	return b.String()
}

var layoutAttributes = []string{"VERSIONS", "BLOOMFILTER", "DATA_BLOCK_ENCODING", "COMPRESSION", "TTL"}

func TestHBase_InitMakesTablesAsAsked(t *testing.T) {
	const (
		made    = " VERSIONS=1 BLOOMFILTER=ROW DATA_BLOCK_ENCODING=FAST_DIFF COMPRESSION=GZ TTL="
		forever = "2147483647"
		whole   = `regions begin at ""`
	)
	for _, c := range []struct {
		name  string
		flags []string
		data  string
		kept  string // of exemplars
	}{
		{
			"init_salted", []string{"--salt.width=1", "--salt.buckets=4", "--hbase.ttl=400d"},
			"t:" + made + "34560000; " + whole + ` "01" "02" "03"`, "34560000",
		},
		{
			"init_wide_salt", []string{"--salt.width=2", "--salt.buckets=300", "--hbase.regions=3"},
			"t:" + made + forever + "; " + whole + ` "0064" "00c8"`, forever,
		},
		{"init_plain", nil, "t:" + made + forever + "; " + whole, forever},
		{"init_metrics", []string{"--hbase.regions=2"}, "t:" + made + forever + "; " + whole + ` "0003e9"`, forever},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHBaseTables(t, c.name)
			admin := h.admin(t)
			// HBase has no codec of the first name, and says so when a table is made with it.
			flags := append(c.flags, "--hbase.compression=lzo", "--hbase.compression=gz")
			if got, want := h.init(t, flags...), h.initSaid("created", "created", "created", "created"); got != want {
				t.Errorf("init said\n%s, want\n%s", got, want)
			}
			check := func(when string) {
				t.Helper()
				for table, want := range map[string]string{
					h.data(): c.data,
					h.uid():  "id:" + made + forever + "; name:" + made + forever + "; " + whole,
					h.meta(): "name:" + made + forever + "; " + whole,
					h.own():  "p:" + made + forever + "; " + whole,
					h.seen(): "p:" + made + c.kept + "; " + whole,
					h.log(): "p: VERSIONS=1 BLOOMFILTER=NONE DATA_BLOCK_ENCODING=NONE COMPRESSION=NONE TTL=" + forever +
						"; " + whole + ` "20" "40" "60" "80" "a0" "c0" "e0"`,
				} {
					if got := describe(t, admin, table, layoutAttributes...); got != want {
						t.Errorf("%s: table %s:\ngot  %s\nwant %s", when, table, got, want)
					}
				}
			}
			check("after init")
			again := h.init(t, "--hbase.ttl=1d", "--hbase.regions=7", "--hbase.compression=none")
			if want := h.initSaid("adopted", "adopted", "adopted", "adopted"); again != want {
				t.Errorf("the second init said\n%s, want\n%s", again, want)
			}
			check("after a second init")
		})
	}
}

func TestHBase_InitLeavesOthersTablesAsTheyAre(t *testing.T) {
	h := newHBaseTables(t, "init_adopt")
	admin := h.admin(t)
	h.cluster.CreateTables(
		hbasetest.Table{Name: h.data(), Families: []string{"t"}, Splits: [][]byte{{0, 0, 7}}},
		hbasetest.Table{Name: h.uid(), Families: []string{"id", "name"}},
		hbasetest.Table{Name: h.meta(), Families: []string{"name"}},
	)
	theirs := func() (text string) {
		for _, table := range []string{h.data(), h.uid(), h.meta()} {
			schema, err := admin.Describe(t.Context(), table)
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintf("%+v %s\n", schema, describe(t, admin, table))
		}
		return text
	}
	before := theirs()
	got := h.init(t, "--hbase.ttl=30d", "--hbase.regions=5", "--hbase.compression=gz")
	if want := h.initSaid("adopted", "adopted", "adopted", "created"); got != want {
		t.Errorf("init said\n%s, want\n%s", got, want)
	}
	if after := theirs(); after != before {
		t.Errorf("init changed tables that existed: before\n%s, after\n%s", before, after)
	}
}

func TestHBase_PrometheusReadsBackWhatItWrote(t *testing.T) {
	for name, message := range map[string]string{"e2e_v1": messageV1, "e2e_v2": messageV2} {
		t.Run(message, func(t *testing.T) {
			t.Parallel()
			h := newHBaseTables(t, name)
			h.init(t, "--salt.width=1", "--salt.buckets=4")
			readsBackWhatItWrote(t, h.serve(t), message)
		})
	}
}

func TestHBase_PrometheusFindsExemplarsAndMetadata(t *testing.T) {
	t.Parallel()
	h := newHBaseTables(t, "e2e_beside")
	h.init(t, "--salt.width=1", "--salt.buckets=4")
	findsExemplarsAndMetadata(t, h.serve(t, "--write.lease-ttl=2s"), messageV1)
}

// mustPost writes series to promtsd, as the message that turn says.
func mustPost(ctx context.Context, url string, turn int, series []sent) error {
	message := []string{messageV1, messageV2}[turn%2]
	res, err := postWrite(ctx, http.DefaultClient, url, message, series)
	if err == nil && res.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("write to %s: %s", url, res.Status)
	}
	return err
}

// assertReads compares what promtsd answers in both forms about metrics whose names match a pattern with what was
// written, and samples with their bits.
func assertReads(t *testing.T, url, pattern string, want model) {
	t.Helper()
	matcher, err := labels.NewMatcher(labels.MatchRegexp, "__name__", pattern)
	if err != nil {
		t.Fatal(err)
	}
	wanted := want.read(0, mapping.MaxTime, []*labels.Matcher{matcher})
	queries := []*prompb.Query{{
		StartTimestampMs: 0, EndTimestampMs: time.Now().Add(time.Hour).UnixMilli(),
		Matchers: []*prompb.LabelMatcher{{Type: prompb.LabelMatcher_RE, Name: "__name__", Value: pattern}},
	}}
	for _, form := range readForms {
		got, err := postRead(t.Context(), http.DefaultClient, url, form, queries)
		if err != nil {
			t.Fatalf("read from %s in form %v: %v", url, form, err)
		}
		assertSameSeries(t, fmt.Sprintf("read from %s in form %v", url, form), got[0], wanted)
	}
}

// assertSameSeries compares two answers, whose series may be in any order.
func assertSameSeries(t *testing.T, what string, got, want []readSeries) {
	t.Helper()
	texts := func(all []readSeries) map[string][]string {
		byLabels := map[string][]string{}
		for _, s := range all {
			// Labels, times and values, apart from each other.
			name := s.labels.String()
			byLabels[name] = append(byLabels[name], strings.Fields(strings.TrimPrefix(s.String(), name))...)
		}
		return byLabels
	}
	if len(got) != len(want) {
		t.Errorf("%s: got %d series, want %d", what, len(got), len(want))
	}
	g, w := texts(got), texts(want)
	all := maps.Clone(g)
	maps.Copy(all, w)
	shown := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if slices.Equal(g[name], w[name]) || shown == 3 {
			continue
		}
		shown++
		at := 0
		for at < min(len(g[name]), len(w[name])) && g[name][at] == w[name][at] {
			at++
		}
		t.Errorf("%s: %s has %d samples, want %d; from sample %d on\ngot  %s\nwant %s",
			what, name, len(g[name]), len(w[name]), at, g[name][at:min(at+5, len(g[name]))], w[name][at:min(at+5, len(w[name]))])
	}
}

func TestHBase_PromtsdSeeEachOthersSeriesAtOnce(t *testing.T) {
	t.Parallel()
	h := newHBaseTables(t, "two")
	h.init(t, "--salt.width=1", "--salt.buckets=4")
	both := []*promtest.Process{h.serve(t), h.serve(t)}
	want := model{}
	start := time.Now().Add(-48 * time.Hour).UnixMilli()
	for turn := range 12 {
		writer, reader := both[turn%2], both[1-turn%2]
		// The reader looked before, and knows that there is none.
		assertReads(t, reader.URL(), fmt.Sprintf("seen_%d", turn), want)
		var series []sent
		for n := range 5 {
			// A new metric in each turn, with names that the other one assigned, and another sample of an old one.
			for _, metric := range []string{fmt.Sprintf("seen_%d", turn), "seen_always"} {
				series = append(series, sent{
					labels: []prompb.Label{
						{Name: "__name__", Value: metric},
						{Name: fmt.Sprintf("label_%d", turn/2), Value: "shared"},
						{Name: "n", Value: fmt.Sprint(n)},
					},
					samples: []request.Sample{{T: start + int64(turn)*7*mapping.HourMs/2 + int64(n), V: float64(turn) / 3}},
				})
			}
		}
		if err := mustPost(t.Context(), writer.URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want.write(series)
		assertReads(t, reader.URL(), "seen_.*", want)
	}
	assertReads(t, both[0].URL(), "seen_.*", want)
}

func TestHBase_NothingAcknowledgedIsLostByKillOfOneOfTwo(t *testing.T) {
	t.Parallel()
	h := newHBaseTables(t, "kill_one")
	h.init(t, "--salt.width=1", "--salt.buckets=4")
	first, second := h.serve(t, shortLease), h.serve(t, shortLease)
	l, stop := startLoad(t, first.URL(), second.URL())
	for range 4 {
		l.await(t, 100)
		l.during(func() {
			first.Kill()
			wait(t, 200*time.Millisecond) // the second is alone
			first.Restart()
		})
	}
	l.await(t, 50)
	l.during(func() { first.Kill() })
	l.await(t, 50)
	l.during(stop)
	// The second is to have taken the journal of the first over.
	h.awaitWriters(t, second)
	delete(l.refused, http.StatusServiceUnavailable) // before a promtsd is ready
	if len(l.refused) > 0 {
		t.Errorf("answers other than 2xx, by status: %v", l.refused)
	}
	l.check(t, second.URL())
	first.Restart()
	l.check(t, first.URL())
}

// assigned reads a UID table: name to UID, each name with its kind before it. It checks that each name's UID leads back
// to it, so that no UID is shared.
func assigned(t *testing.T, cluster *hbasetest.Cluster, table string) map[string]string {
	t.Helper()
	forward, reverse := map[string]string{}, map[string]string{}
	for _, c := range cluster.Scan(table) {
		kind := string(c.Qualifier) + " "
		switch {
		case bytes.Equal(c.Row, []byte{0}) && c.Family == "id":
			continue // the counters
		case c.Family == "id":
			forward[kind+string(c.Row)] = string(c.Value)
		case c.Family == "name":
			reverse[kind+string(c.Row)] = string(c.Value)
		}
	}
	for name, uid := range forward {
		kind, text, _ := strings.Cut(name, " ")
		if back := reverse[kind+" "+uid]; back != text {
			t.Errorf("%s %q has the UID %x, which belongs to %q", kind, text, uid, back)
		}
	}
	return forward
}

// TestHBase_ManyProcessesAssignNames has eight promtsd meet names for the first time at once, of which half are the
// same for all of them.
func TestHBase_ManyProcessesAssignNames(t *testing.T) {
	const processes, rounds, names = 8, 10, 6
	h := newHBaseTables(t, "assign")
	h.init(t)
	var all []*promtest.Process
	for range processes {
		all = append(all, h.serve(t))
	}
	want, expected := model{}, map[string]bool{}
	start := time.Now().Add(-3 * time.Hour).UnixMilli()
	var before map[string]string
	for round := range rounds {
		var g errgroup.Group
		for p, promtsd := range all {
			var series []sent
			for n := range names {
				for _, whose := range []string{"all", fmt.Sprint(p)} {
					suffix := fmt.Sprintf("%s_%d_%d", whose, round, n)
					series = append(series, sent{
						labels: []prompb.Label{
							{Name: "__name__", Value: "assign_" + suffix},
							{Name: "label_" + suffix, Value: "value_" + suffix},
							{Name: "process", Value: fmt.Sprint(p)},
						},
						samples: []request.Sample{{T: start + int64(round), V: float64(p)}},
					})
					expected["metrics assign_"+suffix] = true
					expected["tagk label_"+suffix], expected["tagk process"] = true, true
					expected["tagv value_"+suffix], expected[fmt.Sprintf("tagv %d", p)] = true, true
				}
			}
			want.write(series)
			g.Go(func() error { return mustPost(t.Context(), promtsd.URL(), p+round, series) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if round == rounds/2 {
			before = assigned(t, h.cluster, h.uid())
		}
	}
	after := assigned(t, h.cluster, h.uid())
	for name := range expected {
		if _, ok := after[name]; !ok {
			t.Errorf("%q has no UID", name)
		}
	}
	if len(after) != len(expected) {
		t.Errorf("%d names have UIDs, want %d", len(after), len(expected))
	}
	for name, uid := range before {
		if after[name] != uid {
			t.Errorf("%q had the UID %x, and has now %x", name, uid, after[name])
		}
	}
	lost := 0.0
	for _, promtsd := range all {
		if n, err := metric(t.Context(), promtsd.URL(), "promtsd_uid_lost_races_total"); err == nil {
			lost += n
		}
		assertReads(t, promtsd.URL(), "assign_.*", want)
	}
	t.Logf("%d names assigned; %v ids lost in races", len(after), lost)
}
