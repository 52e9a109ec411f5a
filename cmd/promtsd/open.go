package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	commonmodel "github.com/prometheus/common/model"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/pack"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/hbase"
	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/pebble"
)

// storeFlags say which store, and how it is opened.
type storeFlags struct {
	url         string
	sync        bool
	cache       units.Base2Bytes
	systemTable string

	hbaseUser        string
	hbaseTLS         bool
	hbaseCompression []string
	hbaseTimeout     time.Duration

	host machine
}

type flagGroup interface {
	Flag(name, help string) *kingpin.FlagClause
}

func addStoreFlags(g flagGroup) *storeFlags {
	f := &storeFlags{host: newMachine()}
	g.Flag("store.url", "Where the tables are: pebble:DIRECTORY is the embedded store, made on first use; "+
		"hbase://ZOOKEEPER:2181[,...][/ZNODE] an HBase cluster; hbase+rpc://HOST:16000[,...] one that is found through its "+
		"masters, without ZooKeeper.").Default("pebble:data").StringVar(&f.url)
	g.Flag("store.sync", "Flush every write to the disk before it is acknowledged. With --no-store.sync a crash of the "+
		"machine (not of promtsd) may lose the last second of acknowledged samples.").Default("true").BoolVar(&f.sync)
	g.Flag("store.cache-bytes", "Memory of the embedded store's block cache.").Default("256MiB").BytesVar(&f.cache)
	g.Flag("hbase.user", "Who promtsd says it is to HBase.").Default("promtsd").StringVar(&f.hbaseUser)
	g.Flag("hbase.tls", "Speak TLS to HBase's servers.").BoolVar(&f.hbaseTLS)
	g.Flag("hbase.timeout", "How long a call to HBase may take, its repetitions included, before a request is answered "+
		"503.").Default("1m").DurationVar(&f.hbaseTimeout)
	g.Flag("hbase.compression",
		"Codec of the tables that init makes; may be given more than once, and the first that the "+
			"cluster accepts is taken.").Default("zstd", "snappy", "lz4", "gz", "none").StringsVar(&f.hbaseCompression)
	g.Flag("table.promtsd", "Name of the table that promtsd keeps for itself: settings, and the series of each day.").
		Default(catalog.DefaultTables().System).StringVar(&f.systemTable)
	return f
}

// place is a parsed --store.url.
type place struct {
	dir       string // of an embedded store; empty for HBase
	zooKeeper []string
	znode     string // empty: HBase's default
	masters   []string
}

func (f *storeFlags) place() (place, error) {
	var p place
	scheme, rest, _ := strings.Cut(f.url, ":")
	hosts, znode, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	switch {
	// With two slashes, what is meant to be a host, or a relative directory, would be taken from the root.
	case scheme == "pebble" && rest != "" && !strings.HasPrefix(rest, "//"):
		p.dir = rest
		return p, nil
	case scheme == "hbase" && strings.HasPrefix(rest, "//") && hosts != "":
		p.zooKeeper = strings.Split(hosts, ",")
		if znode != "" {
			p.znode = "/" + znode
		}
		return p, nil
	case scheme == "hbase+rpc" && strings.HasPrefix(rest, "//") && hosts != "" && znode == "":
		p.masters = strings.Split(hosts, ",")
		return p, nil
	}
	return p, fmt.Errorf("--store.url=%s: must be pebble:DIRECTORY, such as pebble:data or pebble:/var/lib/promtsd, "+
		"or hbase://HOST:PORT[,HOST:PORT][/ZNODE], or hbase+rpc://HOST:PORT[,HOST:PORT]", f.url)
}

// open opens the store; an embedded one is made if there is none. registerer may be nil.
func (f *storeFlags) open(logger *slog.Logger, registerer prometheus.Registerer) (store.Store, error) {
	return f.openReporting(context.Background(), logger, registerer, nil)
}

// openReporting is open, and tells why an embedded store waits, at its start or later; nil: it does not.
func (f *storeFlags) openReporting(
	ctx context.Context, logger *slog.Logger, registerer prometheus.Registerer, report func(error),
) (store.Store, error) {
	p, err := f.place()
	if err != nil {
		return nil, err
	}
	if p.dir != "" {
		return pebble.OpenContext(ctx, pebble.Config{
			Dir: p.dir, NoSync: !f.sync, CacheBytes: int64(f.cache), Registerer: registerer, Logger: logger,
			Packing: pebble.Packing{Pack: pack.Append, Unpack: pack.Expand},
			FS:      f.host.disk, Now: f.host.now, Report: report,
		})
	}
	config := hbase.Config{
		Client: client.Config{
			ZooKeeper: p.zooKeeper, ZNode: p.znode, Masters: p.masters,
			User: f.hbaseUser, OperationTimeout: f.hbaseTimeout,
			Dial: f.host.dial,
		},
		Registerer: registerer, Logger: logger, Now: f.host.now,
	}
	if f.hbaseTLS {
		config.Client.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	for _, codec := range f.hbaseCompression {
		config.Compression = append(config.Compression, strings.ToUpper(codec))
	}
	st, err := hbase.Open(config)
	if err != nil {
		return nil, fmt.Errorf("--store.url=%s: %w", f.url, err)
	}
	return st, nil
}

// embedded tells whether the store is this process's own.
func (f *storeFlags) embedded() bool { return strings.HasPrefix(f.url, "pebble:") }

// outsideGo is how much memory the store takes that Go's runtime does not know of.
func (f *storeFlags) outsideGo() int64 {
	if !f.embedded() {
		return 0
	}
	return pebble.Config{CacheBytes: int64(f.cache)}.OutsideGo()
}

// openExisting opens the store, but makes none: whoever reads a store that is not there has named the wrong one.
func (f *storeFlags) openExisting(logger *slog.Logger) (store.Store, error) {
	p, err := f.place()
	if err != nil {
		return nil, err
	}
	if p.dir != "" {
		found, err := lsm.Peek(p.dir, vfs.Default)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for a store in %s: %w", p.dir, err)
		}
		if err != nil || !found.Exists {
			return nil, fmt.Errorf("--store.url=%s: there is no store in %s", f.url, p.dir)
		}
	}
	return f.open(logger, nil)
}

// settingFlags are the flags of the settings that are recorded in the store. Only those that were given count: the
// others are what is recorded, or the default where nothing is.
type settingFlags struct {
	values map[string]*string
	given  map[string]*bool
}

func addSettingFlags(g flagGroup) *settingFlags {
	f := &settingFlags{values: map[string]*string{}, given: map[string]*bool{}}
	help := map[string]string{
		catalog.SaltWidth:   "Bytes of salt before each data row key, which spreads writes over an HBase cluster; 0 is none.",
		catalog.SaltBuckets: "Number of salt buckets; counts only with a salt width.",
		catalog.MetricWidth: "Bytes of a metric UID: 3 are enough for 16.7 million metric names.",
		catalog.TagkWidth:   "Bytes of a tagk UID (a label name).",
		catalog.TagvWidth:   "Bytes of a tagv UID (a label value); 4 where label values change all the time.",
		catalog.NamesMode: "How names are stored: raw keeps their UTF-8 bytes; opentsdb escapes, reversibly, the characters " +
			"that OpenTSDB refuses to write.",
		catalog.TableData: "Name of the table of data points.",
		catalog.TableUID:  "Name of the table of names and UIDs.",
		catalog.TableMeta: "Name of the table of the series index.",
	}
	for _, setting := range catalog.Default().Text() {
		name, value := setting[0], setting[1]
		text, ok := help[name]
		if !ok {
			continue
		}
		f.given[name] = new(bool)
		f.values[name] = g.Flag(name, text+" Recorded when the tables are made; default "+strconv.Quote(value)+".").
			PlaceHolder(value).IsSetByUser(f.given[name]).String()
	}
	return f
}

// requested lists the settings that were given on the command line.
func (f *settingFlags) requested() map[string]string {
	asked := map[string]string{}
	for name, given := range f.given {
		if *given {
			asked[name] = *f.values[name]
		}
	}
	return asked
}

// layoutFlags say how init makes the data table of an HBase cluster.
type layoutFlags struct {
	retention commonmodel.Duration
	regions   int
}

func addLayoutFlags(g flagGroup) *layoutFlags {
	f := new(layoutFlags)
	g.Flag("hbase.ttl",
		"How long HBase keeps data points and exemplars after they were written, such as 400d; 0 is for ever. "+
			"It is the TTL of the tables that init makes; of one that exists, HBase's own tools change it.").
		Default("0s").SetValue(&f.retention)
	g.Flag("hbase.regions", "Regions that a data table is made of: by salt buckets, or by ranges of metric UIDs "+
		"without salt. 0 is one for each bucket, and one without salt.").Default("0").IntVar(&f.regions)
	return f
}

// layout is what was asked for. The embedded store has no use for it, and would leave it aside without a word.
func (f *layoutFlags) layout(store *storeFlags) (catalog.Layout, error) {
	l := catalog.Layout{Retention: time.Duration(f.retention), Regions: f.regions}
	if store.embedded() && l != (catalog.Layout{}) {
		return l, fmt.Errorf("--hbase.ttl and --hbase.regions count for HBase only: give --retention to serve")
	}
	return l, nil
}
