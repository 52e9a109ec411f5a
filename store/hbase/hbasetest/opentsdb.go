package hbasetest

import (
	"cmp"
	_ "embed" // for the files of testdata
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/promtsd/promtsd/store/storetest/child"
)

//go:embed testdata/logback.xml
var logback []byte

// TSDConfig says how OpenTSDB stores. Its zero value is OpenTSDB's default but that new metric names are
// assigned as they come.
type TSDConfig struct {
	// DataTable, UIDTable, TreeTable and MetaTable are the names of the tables; by default tsdb, tsdb-uid, tsdb-tree and
	// tsdb-meta. The first two have to exist, the others if Lines turn on what uses them.
	DataTable, UIDTable, TreeTable, MetaTable string
	// SaltWidth is the width of the salt in bytes and SaltBuckets the number of its values; by default there is none.
	SaltWidth, SaltBuckets int
	// MetricWidth, TagkWidth and TagvWidth are the widths of UIDs in bytes; 3 by default.
	MetricWidth, TagkWidth, TagvWidth int
	// Lines are further lines of the configuration, "tsd.storage.enable_appends=true", over those of the harness.
	Lines []string
}

// OpenTSDBTables are the tables of OpenTSDB's default configuration, each of one region.
func OpenTSDBTables() []Table {
	return []Table{
		{Name: "tsdb", Families: []string{"t"}},
		{Name: "tsdb-uid", Families: []string{"id", "name"}},
		{Name: "tsdb-tree", Families: []string{"t"}},
		{Name: "tsdb-meta", Families: []string{"name"}},
	}
}

// TSD is a running OpenTSDB 2.4.1.
type TSD struct {
	*Process
	dir  string // holds its configuration
	jars string
}

// OpenTSDB runs OpenTSDB on a cluster, and returns when it answers. It is killed when the test ends; only Stop has it
// write what it has buffered.
func OpenTSDB(t testing.TB, cluster *Cluster, cfg TSDConfig) *TSD {
	t.Helper()
	jars, err := opentsdbJars(t)
	if err != nil {
		t.Fatal(err)
	}
	port, err := child.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	tsd := &TSD{dir: t.TempDir(), jars: jars}
	if err := tsd.writeConf(cluster, cfg, port); err != nil {
		t.Fatal(err)
	}
	s := &server{
		name:    "OpenTSDB",
		command: func() *exec.Cmd { return tsd.java("TSDMain") },
		ready:   readyAnswering("http://" + loopback(port) + "/api/version"),
		log:     filepath.Join(tsd.dir, "log"),
	}
	tsd.Process = newProcess(t, s, loopback(port))
	t.Cleanup(func() {
		tsd.check()
		s.kill()
		if t.Failed() {
			tsd.showLog()
		}
	})
	tsd.Restart()
	return tsd
}

// Tool runs one of OpenTSDB's command line tools, by the name of its class in net.opentsdb.tools, on the same tables,
// and returns what it wrote, its log included. The TSD may be up or down. A status other than 0 is an error that holds
// what the tool wrote too; Fsck ends so when it finds something wrong.
//
//	tsd.Tool("Fsck", "--full-scan", "--threads=1")
//	tsd.Tool("UidManager", "assign", "metrics", "cpu")
//
// While a TSD with compaction on runs, a query makes it rewrite rows of past hours some time after, during which Fsck
// finds points twice.
func (d *TSD) Tool(class string, args ...string) (string, error) {
	out, err := child.Output(d.java(class, args...))
	if err != nil {
		return string(out), fmt.Errorf("OpenTSDB's %s: %w", class, err)
	}
	return string(out), nil
}

// java is a run of one of OpenTSDB's main classes with its configuration.
func (d *TSD) java(class string, args ...string) *exec.Cmd {
	flags := []string{
		"-Xmx512m", "-XX:+UseSerialGC", "-XX:-UsePerfData", quickStart,
		"-Djava.net.preferIPv4Stack=true", "-Djava.io.tmpdir=" + d.dir,
		"-Dlogback.configurationFile=" + filepath.Join(d.dir, "logback.xml"),
		"-cp", filepath.Join(d.jars, "*"),
		"net.opentsdb.tools." + class, "--config=" + filepath.Join(d.dir, "opentsdb.conf"),
	}
	cmd := exec.Command("java", append(flags, args...)...)
	cmd.Dir = d.dir
	return cmd
}

// writeConf fills the TSD's folder.
func (d *TSD) writeConf(cluster *Cluster, cfg TSDConfig, port int) error {
	static, cache := filepath.Join(d.dir, "static"), filepath.Join(d.dir, "cache")
	for _, dir := range []string{static, cache} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	lines := []string{
		"tsd.network.bind=127.0.0.1",
		fmt.Sprintf("tsd.network.port=%d", port),
		"tsd.http.staticroot=" + static,
		"tsd.http.cachedir=" + cache,
		// The largest answer or question of a test is many points at once.
		"tsd.http.request.enable_chunked=true",
		"tsd.http.request.max_chunk=16777216",
		"tsd.core.auto_create_metrics=true",
		"tsd.storage.hbase.zk_quorum=" + cluster.ZK(),
		"tsd.storage.hbase.zk_basedir=" + cluster.ZNode(),
		"tsd.storage.hbase.data_table=" + cmp.Or(cfg.DataTable, "tsdb"),
		"tsd.storage.hbase.uid_table=" + cmp.Or(cfg.UIDTable, "tsdb-uid"),
		"tsd.storage.hbase.tree_table=" + cmp.Or(cfg.TreeTable, "tsdb-tree"),
		"tsd.storage.hbase.meta_table=" + cmp.Or(cfg.MetaTable, "tsdb-meta"),
		fmt.Sprintf("tsd.storage.uid.width.metric=%d", cmp.Or(cfg.MetricWidth, 3)),
		fmt.Sprintf("tsd.storage.uid.width.tagk=%d", cmp.Or(cfg.TagkWidth, 3)),
		fmt.Sprintf("tsd.storage.uid.width.tagv=%d", cmp.Or(cfg.TagvWidth, 3)),
		"tsd.storage.flush_interval=100", // A put is seen by queries so many milliseconds later.
	}
	if cfg.SaltWidth > 0 {
		lines = append(lines, fmt.Sprintf("tsd.storage.salt.width=%d", cfg.SaltWidth),
			fmt.Sprintf("tsd.storage.salt.buckets=%d", cfg.SaltBuckets))
	}
	// Of a key that is there twice Java takes the last.
	text := strings.Join(append(lines, cfg.Lines...), "\n") + "\n"
	if err := os.WriteFile(filepath.Join(d.dir, "opentsdb.conf"), []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "logback.xml"), logback, 0o644)
}
