package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	lsm "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/pebble"
)

// storeFlags say which store, and how it is opened.
type storeFlags struct {
	url   string
	sync  bool
	cache units.Base2Bytes
	own   string
}

type flagGroup interface {
	Flag(name, help string) *kingpin.FlagClause
}

func addStoreFlags(g flagGroup) *storeFlags {
	f := new(storeFlags)
	g.Flag("store.url", "Where the tables are: pebble:DIRECTORY is the embedded store, made on first use.").
		Default("pebble:data").StringVar(&f.url)
	g.Flag("store.sync", "Flush every write to the disk before it is acknowledged. With --no-store.sync a crash of the "+
		"machine (not of promtsd) may lose the last second of acknowledged samples.").Default("true").BoolVar(&f.sync)
	g.Flag("store.cache", "Memory of the embedded store's block cache.").Default("256MiB").BytesVar(&f.cache)
	g.Flag("table.promtsd", "Name of the table that promtsd keeps for itself: settings, and the series of each day.").
		Default(catalog.DefaultTables().Own).StringVar(&f.own)
	return f
}

// dir is the directory of the embedded store.
func (f *storeFlags) dir() (string, error) {
	scheme, dir, _ := strings.Cut(f.url, ":")
	// With two slashes, what is meant to be a host, or a relative directory, would be taken from the root.
	if scheme != "pebble" || dir == "" || strings.HasPrefix(dir, "//") {
		return "", fmt.Errorf("--store.url=%s: must be pebble:DIRECTORY, such as pebble:data or pebble:/var/lib/promtsd", f.url)
	}
	return dir, nil
}

// open opens the store, and makes it if there is none. registerer may be nil.
func (f *storeFlags) open(logger *slog.Logger, registerer prometheus.Registerer) (store.Store, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	return pebble.Open(pebble.Config{
		Dir: dir, NoSync: !f.sync, CacheBytes: int64(f.cache), Registerer: registerer, Logger: logger,
	})
}

// openExisting opens the store, but makes none: whoever reads a store that is not there has named the wrong one.
func (f *storeFlags) openExisting(logger *slog.Logger) (store.Store, error) {
	dir, err := f.dir()
	if err != nil {
		return nil, err
	}
	found, err := lsm.Peek(dir, vfs.Default)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for a store in %s: %w", dir, err)
	}
	if err != nil || !found.Exists {
		return nil, fmt.Errorf("--store.url=%s: there is no store in %s", f.url, dir)
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

// asked lists the settings that were given on the command line.
func (f *settingFlags) asked() map[string]string {
	asked := map[string]string{}
	for name, given := range f.given {
		if *given {
			asked[name] = *f.values[name]
		}
	}
	return asked
}
