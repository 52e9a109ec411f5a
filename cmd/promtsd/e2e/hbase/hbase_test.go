// Package hbase_test runs several promtsd on one HBase: the tables that init makes, names that many assign at once,
// buffered samples that peers ask for, and journals that are taken over.
package hbase_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"golang.org/x/sync/errgroup"

	"github.com/promtsd/promtsd/cmd/promtsd/promtest"
	"github.com/promtsd/promtsd/cmd/promtsd/remotetest"
	"github.com/promtsd/promtsd/mapping"
	"github.com/promtsd/promtsd/mapping/request"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
)

// admin is a client of the shared HBase.
func admin(t *testing.T, h promtest.Tables) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{ZooKeeper: []string{h.Cluster.ZK()}, ZNode: h.Cluster.ZNode()})
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
			h := promtest.NewTables(t, c.name)
			admin := admin(t, h)
			// HBase has no codec of the first name, and says so when a table is made with it.
			flags := append(c.flags, "--hbase.compression=lzo", "--hbase.compression=gz")
			if got, want := h.Init(t, flags...), h.InitSaid("created", "created", "created", "created"); got != want {
				t.Errorf("init said\n%s, want\n%s", got, want)
			}
			check := func(when string) {
				t.Helper()
				for table, want := range map[string]string{
					h.DataTable():     c.data,
					h.UIDTable():      "id:" + made + forever + "; name:" + made + forever + "; " + whole,
					h.MetaTable():     "name:" + made + forever + "; " + whole,
					h.SystemTable():   "p:" + made + forever + "; " + whole,
					h.ExemplarTable(): "p:" + made + c.kept + "; " + whole,
					h.JournalTable(): "p: VERSIONS=1 BLOOMFILTER=NONE DATA_BLOCK_ENCODING=NONE COMPRESSION=NONE TTL=" + forever +
						"; " + whole + ` "20" "40" "60" "80" "a0" "c0" "e0"`,
				} {
					if got := describe(t, admin, table, layoutAttributes...); got != want {
						t.Errorf("%s: table %s:\ngot  %s\nwant %s", when, table, got, want)
					}
				}
			}
			check("after init")
			again := h.Init(t, "--hbase.ttl=1d", "--hbase.regions=7", "--hbase.compression=none")
			if want := h.InitSaid("adopted", "adopted", "adopted", "adopted"); again != want {
				t.Errorf("the second init said\n%s, want\n%s", again, want)
			}
			check("after a second init")
		})
	}
}

func TestHBase_InitLeavesOthersTablesAsTheyAre(t *testing.T) {
	h := promtest.NewTables(t, "init_adopt")
	admin := admin(t, h)
	h.Cluster.CreateTables(
		hbasetest.Table{Name: h.DataTable(), Families: []string{"t"}, Splits: [][]byte{{0, 0, 7}}},
		hbasetest.Table{Name: h.UIDTable(), Families: []string{"id", "name"}},
		hbasetest.Table{Name: h.MetaTable(), Families: []string{"name"}},
	)
	theirs := func() (text string) {
		for _, table := range []string{h.DataTable(), h.UIDTable(), h.MetaTable()} {
			schema, err := admin.Describe(t.Context(), table)
			if err != nil {
				t.Fatal(err)
			}
			text += fmt.Sprintf("%+v %s\n", schema, describe(t, admin, table))
		}
		return text
	}
	before := theirs()
	got := h.Init(t, "--hbase.ttl=30d", "--hbase.regions=5", "--hbase.compression=gz")
	if want := h.InitSaid("adopted", "adopted", "adopted", "created"); got != want {
		t.Errorf("init said\n%s, want\n%s", got, want)
	}
	if after := theirs(); after != before {
		t.Errorf("init changed tables that existed: before\n%s, after\n%s", before, after)
	}
}

func TestHBase_PromtsdSeeEachOthersSeriesAtOnce(t *testing.T) {
	t.Parallel()
	h := promtest.NewTables(t, "two")
	h.Init(t, "--salt.width=1", "--salt.buckets=4")
	both := []*promtest.Process{h.Serve(t), h.Serve(t)}
	want := remotetest.Model{}
	start := time.Now().Add(-48 * time.Hour).UnixMilli()
	for turn := range 12 {
		writer, reader := both[turn%2], both[1-turn%2]
		// The reader looked before, and knows that there is none.
		remotetest.AssertReads(t, reader.URL(), fmt.Sprintf("seen_%d", turn), want)
		var series []remotetest.Series
		for n := range 5 {
			// A new metric in each turn, with names that the other one assigned, and another sample of an old one.
			for _, metric := range []string{fmt.Sprintf("seen_%d", turn), "seen_always"} {
				series = append(series, remotetest.Series{
					Labels: []prompb.Label{
						{Name: "__name__", Value: metric},
						{Name: fmt.Sprintf("label_%d", turn/2), Value: "shared"},
						{Name: "n", Value: fmt.Sprint(n)},
					},
					Samples: []request.Sample{{T: start + int64(turn)*7*mapping.HourMs/2 + int64(n), V: float64(turn) / 3}},
				})
			}
		}
		if err := remotetest.WriteInTurn(t.Context(), writer.URL(), turn, series); err != nil {
			t.Fatal(err)
		}
		want.Write(series)
		remotetest.AssertReads(t, reader.URL(), "seen_.*", want)
	}
	remotetest.AssertReads(t, both[0].URL(), "seen_.*", want)
}

// TestHBase_ManyProcessesAssignNames has eight promtsd meet names for the first time at once, of which half are the
// same for all of them.
func TestHBase_ManyProcessesAssignNames(t *testing.T) {
	const processes, rounds, names = 8, 10, 6
	h := promtest.NewTables(t, "assign")
	h.Init(t)
	var all []*promtest.Process
	for range processes {
		all = append(all, h.Serve(t))
	}
	want, expected := remotetest.Model{}, map[string]bool{}
	start := time.Now().Add(-3 * time.Hour).UnixMilli()
	var before map[string]string
	for round := range rounds {
		var g errgroup.Group
		for p, promtsd := range all {
			var series []remotetest.Series
			for n := range names {
				for _, whose := range []string{"all", fmt.Sprint(p)} {
					suffix := fmt.Sprintf("%s_%d_%d", whose, round, n)
					series = append(series, remotetest.Series{
						Labels: []prompb.Label{
							{Name: "__name__", Value: "assign_" + suffix},
							{Name: "label_" + suffix, Value: "value_" + suffix},
							{Name: "process", Value: fmt.Sprint(p)},
						},
						Samples: []request.Sample{{T: start + int64(round), V: float64(p)}},
					})
					expected["metrics assign_"+suffix] = true
					expected["tagk label_"+suffix], expected["tagk process"] = true, true
					expected["tagv value_"+suffix], expected[fmt.Sprintf("tagv %d", p)] = true, true
				}
			}
			want.Write(series)
			g.Go(func() error { return remotetest.WriteInTurn(t.Context(), promtsd.URL(), p+round, series) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if round == rounds/2 {
			before = h.AssignedUIDs(t)
		}
	}
	after := h.AssignedUIDs(t)
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
		if n, err := promtest.Metric(t.Context(), promtsd.URL(), "promtsd_uid_lost_races_total"); err == nil {
			lost += n
		}
		remotetest.AssertReads(t, promtsd.URL(), "assign_.*", want)
	}
	t.Logf("%d names assigned; %v ids lost in races", len(after), lost)
}
