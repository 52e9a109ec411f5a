package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"regexp"
	"runtime/debug"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	commonmodel "github.com/prometheus/common/model"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/adapter/api"
	"github.com/promtsd/promtsd/adapter/peer"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/query/promstore"
	"github.com/promtsd/promtsd/store"
	"github.com/promtsd/promtsd/store/instrument"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	web      web.FlagConfig
	store    *storeFlags
	settings *settingFlags

	drain     time.Duration
	conns     int
	profiles  bool
	origins   []string
	retention commonmodel.Duration

	maxBody, maxInFlight units.Base2Bytes
	limits               ingest.Limits
	newNames             uid.Limits
	infinities           bool
	buffer               ingest.Buffer
	maxBuffered          units.Base2Bytes
	cacheSeries          int
	cacheNames           int

	read                    adapter.ReadLimits
	maxRequest, maxResponse units.Base2Bytes
	maxSeries               int
	concurrency             int
	indexSeries             int
	refresh                 time.Duration
	promql                  *promqlFlags
	peers                   *peerFlags

	parsed func() map[string]string // all flags, with their values
	fit    func(limit int64) error  // see fitMemory
	limit  int64                    // of the process's memory, math.MaxInt64 for none
}

func addServe(app *kingpin.Application) (string, command) {
	cmd := app.Command("serve",
		"Serve remote write and remote read (the default). An embedded store is made on first start.").Default()
	f := &serveFlags{}
	f.web.WebListenAddresses = cmd.Flag("web.listen-address", "Address to listen on; may be given more than once.").
		Default(":9201").Strings()
	f.web.WebConfigFile = cmd.Flag("web.config.file", "File that turns on TLS or authentication, in the format of "+
		"Prometheus's exporter toolkit.").Default("").String()
	f.web.WebSystemdSocket = cmd.Flag("web.systemd-socket", "Listen on the sockets that systemd passes.").Bool()
	cmd.Flag("web.trusted-origin",
		"Origin, such as https://ops.example, whose pages may have a browser write and read by the "+
			"remote protocols; may be given more than once. Without, only pages of this host may. For queries see --web.cors.origin.").
		PlaceHolder("ORIGIN").StringsVar(&f.origins)
	cmd.Flag("web.max-connections",
		"Connections at a time. Past it one that is idle is closed for one that comes, or that one "+
			"if none is.").Default("512").IntVar(&f.conns)
	cmd.Flag("web.enable-pprof",
		"Serve profiles of the process at /debug/pprof/: what it does, and with which names.").BoolVar(&f.profiles)
	cmd.Flag("web.drain-timeout", "How long requests under way may take to finish after SIGTERM, and then the "+
		"samples that wait to be stored. What is not stored by then stays in the journal, and is replayed.").
		Default("20s").DurationVar(&f.drain)
	f.store, f.settings = addStoreFlags(cmd), addSettingFlags(cmd)

	cmd.Flag("write.max-body-bytes", "Largest remote-write request, as sent and inflated.").Default(
		"32MiB").BytesVar(&f.maxBody)
	cmd.Flag("write.max-in-flight-bytes",
		"Memory of all requests under way together, bodies that trickle in included; past it "+
			"they are answered 503, to be sent again.").Default("256MiB").BytesVar(&f.maxInFlight)
	cmd.Flag("write.max-labels", "Labels of a series, its name included.").Default("128").IntVar(&f.limits.Labels)
	cmd.Flag("write.max-label-name-bytes", "Length of a label name.").Default("1024").IntVar(&f.limits.LabelName)
	cmd.Flag("write.max-label-value-bytes", "Length of a label value, and of a metric name.").
		Default("8192").IntVar(&f.limits.LabelValue)
	cmd.Flag("write.max-active-series",
		"Series that have samples within an hour, counted since the start. Past it series that have none yet "+
			"are refused until others end, all others are stored. 0 is any number.").Default("2000000").IntVar(&f.limits.Active)
	cmd.Flag("write.max-new-names-per-second",
		"Metric names, label names and label values that may get a new UID in a second. Series "+
			"that need more are refused until later, all others are stored. Senders of whose series most are new have as many of their own. 0 is any number.").
		Default("50000").IntVar(&f.newNames.PerSecond)
	cmd.Flag("write.max-new-names-per-hour",
		"The same in an hour: UIDs never come back, there are 16.7 million of a kind.").
		Default("2000000").IntVar(&f.newNames.PerHour)
	cmd.Flag("write.max-future", "How far ahead of the clock a sample may be; 0 is any time.").
		Default("10m").DurationVar(&f.limits.Future)
	cmd.Flag("write.infinities", "Store infinite values. With --no-write.infinities they are refused with 400, for those "+
		"who share the tables with OpenTSDB, whose queries fail on them.").Default("true").BoolVar(&f.infinities)
	cmd.Flag("retention",
		"How long the embedded store keeps samples and exemplars, such as 400d, counted back from the newest by their own "+
			"times; 0 is for ever. On HBase it is --hbase.ttl of init.").Default("0s").SetValue(&f.retention)
	cmd.Flag("write.flush-interval",
		"How long a sample waits in memory, safe in the journal, so that many of a row become one cell. "+
			"0 writes a cell for each sample before it is acknowledged.").Default("5m").DurationVar(&f.buffer.FlushInterval)
	cmd.Flag("write.max-buffered-bytes",
		"Memory of samples that wait, and of what finds them. From half of it on they are stored early; beyond it requests "+
			"are answered 503, to be sent again.").Default("512MiB").BytesVar(&f.maxBuffered)
	cmd.Flag("write.lease-ttl",
		"How long another promtsd on the same HBase waits for a sign of life of this one before it takes "+
			"its journal over.").Default("15s").DurationVar(&f.buffer.LeaseTTL)
	cmd.Flag("write.cache-series", "Series that the write path keeps at hand, at some 500 bytes each; more than are "+
		"active is best. With 1 KiB each memory is full: of series with very long labels fewer are kept.").Default(
		"1000000").IntVar(&f.cacheSeries)
	cmd.Flag("uid.cache-entries", "Names and UIDs kept in memory, in each direction, at some 150 bytes "+
		"each; fewer if the names have more than 128 bytes on average.").Default("1000000").IntVar(&f.cacheNames)

	cmd.Flag("read.max-concurrent", "Remote reads served at a time; others wait.").Default(
		"10").IntVar(&f.read.MaxConcurrent)
	cmd.Flag("read.max-request-bytes", "Largest remote-read request.").Default("4MiB").BytesVar(&f.maxRequest)
	cmd.Flag("read.max-samples", "Samples of a remote-read answer in the SAMPLES response type, which is built in memory; the "+
		"streamed one has no bound.").Default("50000000").IntVar(&f.read.MaxSamples)
	cmd.Flag("read.max-response-bytes", "Size of a remote-read answer in the SAMPLES response type.").
		Default("512MiB").BytesVar(&f.maxResponse)
	cmd.Flag("query.max-series", "Series that one selector may find; 0 is any number.").Default(
		"1000000").IntVar(&f.maxSeries)
	cmd.Flag("query.max-parallel-reads", "Parts of one query that are read from the store at a time.").Default(
		"4").IntVar(&f.concurrency)
	cmd.Flag("index.max-series",
		"Series of the index that are kept in memory, at 100 to 200 bytes each, and twice that while they are "+
			"read anew; of more, the latest days, and of a day too large the metrics with fewest series. What is beyond, and with 0 all, is read from the "+
			"store, which is slower.").Default("2000000").IntVar(&f.indexSeries)
	cmd.Flag("index.refresh-interval",
		"On HBase, keep the index in memory, and find series that another promtsd stores within this time. "+
			"With 0 they are found at once, by an index that is read from HBase, which is slower.").
		Default("0s").DurationVar(&f.refresh)
	f.promql = addPromQLFlags(cmd)
	f.peers = addPeerFlags(cmd)
	f.fit = fitMemory(cmd)
	f.parsed = func() map[string]string {
		values := map[string]string{}
		for _, flag := range cmd.Model().Flags {
			values[flag.Name] = flag.Value.String()
		}
		return values
	}
	return cmd.FullCommand(), f.serve
}

// serve opens the store, builds the other parts on it, serves until ctx ends, and takes the parts down in the reverse
// order.
func (f *serveFlags) serve(ctx context.Context, env environment) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	logger := env.logger
	logger.Info("starting promtsd", "version", version.Info(), "build", version.BuildContext())
	if _, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(0.9), memlimit.WithProvider(
		memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem))); err != nil {
		logger.Warn("memory limit not set", "err", err)
	}
	f.limit = debug.SetMemoryLimit(-1)
	if err := f.fit(f.limit); err != nil {
		return err
	}
	debug.SetMemoryLimit(goLimit(f.limit, f.store.outsideGo()))
	registry := prometheus.NewRegistry()
	registry.MustRegister(versioncollector.NewCollector("promtsd"), collectors.NewGoCollector(
		collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(
			`^/cpu/classes/(gc/total|user):`)})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	connections, err := newConnections(f.conns, "--web.max-connections", registry, logger)
	if err != nil {
		return err
	}
	l := &listener{
		web: &f.web, logger: logger, drain: f.drain, connections: connections,
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
	}
	ctx = l.listen(ctx)
	defer func() { err = errors.Join(l.close(), err) }()
	return f.serveStore(ctx, l, opened{logger: logger, registry: registry})
}

// serveStore opens the store and serves it until ctx ends, or the store fails.
func (f *serveFlags) serveStore(ctx context.Context, l *listener, o opened) (err error) {
	o.store, err = f.store.openReporting(ctx, o.log("store"), o.registry, func(why error) {
		if why == nil {
			why = errStarting
		}
		l.waitFor(why.Error())
	})
	switch {
	case err != nil && ctx.Err() != nil: // it was told to stop, or cannot listen
		o.logger.Info("stopped during the start")
		return nil
	case err != nil:
		return err
	}
	o.condition = conditionOf(o.store)
	instrumented, err := instrument.New(o.store, o.registry)
	if err != nil {
		return errors.Join(err, o.store.Close())
	}
	o.store = instrumented
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-o.condition.Failed():
			stop()
		case <-ctx.Done():
		}
	}()
	defer func() { err = o.condition.end(errors.Join(err, o.store.Close())) }()
	err = o.condition.persevere(ctx, o.logger, func() error {
		o.settings, err = f.adopt(ctx, o.logger, o.store)
		return err
	})
	switch {
	case ctx.Err() != nil:
		o.logger.Info("stopped during the start")
		return nil
	case err != nil:
		return err
	}
	return f.serveParts(ctx, l, o)
}

// opened is a store with what every part on it needs.
type opened struct {
	logger    *slog.Logger
	registry  *prometheus.Registry
	store     store.Store
	condition condition
	settings  catalog.Settings
}

// log is the logger of a part.
func (o opened) log(component string) *slog.Logger { return o.logger.With("component", component) }

// serveParts builds the parts bottom up, and serves until ctx ends.
func (f *serveFlags) serveParts(ctx context.Context, l *listener, o opened) (err error) {
	uids, err := uid.New(uid.Config{
		Store: o.store, Table: o.settings.Tables.UID, Schema: o.settings.Schema, Names: o.settings.Names,
		CacheEntries: f.cacheNames, Limits: f.newNames, Registerer: o.registry, Logger: o.log("uid"),
	})
	if err != nil {
		return err
	}
	defer uids.Close()
	var peers *peerServer
	address := ""
	if !f.store.embedded() {
		if peers, err = f.peers.open(*f.web.WebConfigFile, o.registry, o.log("peer")); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, peers.close()) }()
		address = peers.url
	}
	memory, err := f.memory(index.MemoryConfig{
		Store: o.store, Settings: o.settings, Registerer: o.registry, Logger: o.log("index"),
	})
	if err != nil {
		return err
	}
	appender, err := f.appender(address, ingest.Config{
		Store: o.store, Settings: o.settings, UIDs: uids, Registerer: o.registry, Logger: o.log("ingest"), Now: f.store.host.now,
		Apply: memory.Apply, Writable: o.condition.Writable,
	})
	if err != nil {
		return err
	}
	var buffer query.Buffer = appender
	if peers != nil {
		buffer = peers.group(appender, appender.Writer, func(ctx context.Context) ([]journal.Lease, error) {
			return journal.Leases(ctx, o.store, o.settings.Tables)
		})
	}
	quarantine, err := journal.NewQuarantine(o.store, o.settings.Tables, o.registry, o.log("journal"))
	if err != nil {
		return err
	}
	querier, err := query.New(query.Config{
		Store: o.store, Settings: o.settings, MaxSeries: f.maxSeries, Registerer: o.registry, Logger: o.log("query"),
		Index:  index.NewReader(index.Config{Store: o.store, Settings: o.settings, UIDs: uids, Memory: memory}),
		Buffer: buffer, Missing: quarantine.Missing, Concurrency: f.concurrency, Costs: f.costs(),
	})
	if err != nil {
		return err
	}
	queries, err := f.promql.memory(f.limit, o.registry)
	if err != nil {
		return err
	}
	f.read.MaxRequestBytes, f.read.MaxResponseBytes = int(f.maxRequest), int(f.maxResponse)
	handler, err := adapter.New(adapter.Config{
		Appender: appender, Querier: querier, NewFinder: appender.NewFinder,
		Write: adapter.WriteLimits{MaxBodyBytes: int(f.maxBody), MaxInFlightBytes: int(f.maxInFlight)},
		Read:  f.read, Memory: queries, Registerer: o.registry, Gatherer: o.registry, Logger: o.log("adapter"),
		Version:  version.Version,
		Profiles: f.profiles,
		Healthy:  o.condition.healthy,
		Ready:    func() error { return cmp.Or(o.condition.Writable(), appender.Ready()) }, Starting: appender.Replaying,
	})
	if err != nil {
		return err
	}
	otlp := promstore.Appendable{Appender: appender, MaxBytes: 2 * int(f.maxBody)}
	promql, err := f.promql.handler(querier, otlp, f.parsed(), o.registry, o.log("api"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, promql.Close()) }()
	public := http.NewServeMux()
	public.Handle(api.Prefix, handler.WhenReady(handler.Buffer(handler.Account(promql))))
	public.Handle("GET /federate", handler.WhenReady(handler.Account(http.HandlerFunc(promql.Federate))))
	public.HandleFunc("GET /version", promql.Version)
	protect, err := f.protect()
	if err != nil {
		return err
	}
	for _, path := range adapter.RemotePaths {
		public.Handle(path, protect.Handler(handler))
	}
	public.Handle(api.Prefix+"otlp/", protect.Handler(handler.WhenReady(handler.BufferOTLP(promql))))
	public.Handle(api.Prefix+"admin/", protect.Handler(handler.WhenReady(handler.Buffer(promql))))
	public.Handle("/", handler)
	public.Handle("GET "+explainPath, handler.WhenReady(handler.Account(explainHandler{querier, f.promql.parser()})))

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if peers != nil {
		if err := peers.serve(ctx, appender, appender.Writer, stop); err != nil {
			return err
		}
	}
	retention, err := newDropper(o, memory, time.Duration(f.retention), f.store.host.now)
	if err != nil {
		return err
	}
	tasks, stopTasks := context.WithCancel(ctx)
	var running sync.WaitGroup
	if f.retention > 0 {
		running.Go(func() { retention.run(tasks) })
	}
	running.Go(func() { memory.Run(tasks) })
	running.Go(func() { quarantine.Run(tasks) })
	return l.run(ctx, service{
		public: peer.Remember(public),
		start: func(ctx context.Context) error {
			return o.condition.persevere(ctx, o.logger, func() error { return appender.Start(ctx) })
		},
		started: handler.SetReady, refuse: handler.Drain,
		finish: func(ctx context.Context) error {
			stopTasks()
			running.Wait()
			return appender.Close(ctx)
		},
	})
}

// protect refuses what pages of other origins have a browser send.
func (f *serveFlags) protect() (*http.CrossOriginProtection, error) {
	p := http.NewCrossOriginProtection()
	for _, origin := range f.origins {
		if err := p.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("--web.trusted-origin=%s: %w", origin, err)
		}
	}
	return p, nil
}

// check refuses flags that cannot be, before a store is made.
func (f *serveFlags) check() error {
	if err := f.peers.check(f.store.embedded()); err != nil {
		return err
	}
	if f.retention > 0 && !f.store.embedded() {
		return errors.New(
			"--retention counts for the embedded store only: in HBase it is the TTL of the tables of data and of " +
				"exemplars, which --hbase.ttl of init sets and HBase's shell changes")
	}
	if _, err := f.promql.memory(math.MaxInt64, nil); err != nil {
		return err
	}
	if f.buffer.FlushInterval != 0 && (f.buffer.FlushInterval < time.Second || f.buffer.FlushInterval > time.Hour) {
		return fmt.Errorf("--write.flush-interval is %v, must be 0 or from 1s to 1h", f.buffer.FlushInterval)
	}
	if f.maxBuffered < 1<<20 {
		return fmt.Errorf("--write.max-buffered-bytes is %v, must be 1MiB or more", f.maxBuffered)
	}
	if f.concurrency < 1 || f.indexSeries < 0 || f.refresh != 0 && f.refresh < 100*time.Millisecond {
		return errors.New(
			"--query.max-parallel-reads must be 1 or more, --index.max-series 0 or more, --index.refresh-interval 0 or 100ms or more")
	}
	if f.limits.Active < 0 {
		return errors.New("--write.max-active-series must be 0 or more")
	}
	if f.newNames.PerSecond < 0 || f.newNames.PerHour < 0 {
		return errors.New("--write.max-new-names-per-second and --write.max-new-names-per-hour must be 0 or more")
	}
	for name, limit := range map[string]int{
		"web.max-connections": f.conns, "write.max-labels": f.limits.Labels, "write.max-label-name-bytes": f.limits.LabelName,
		"write.max-label-value-bytes": f.limits.LabelValue,
	} {
		if limit < 1 {
			return fmt.Errorf("--%s is %d, must be 1 or more", name, limit)
		}
	}
	if f.buffer.LeaseTTL < time.Second || f.buffer.LeaseTTL > time.Hour {
		return fmt.Errorf("--write.lease-ttl is %v, must be from 1s to 1h", f.buffer.LeaseTTL)
	}
	return nil
}

// appender makes the write path of a promtsd that others reach at an address; empty: there are none.
func (f *serveFlags) appender(address string, c ingest.Config) (*ingest.Appender, error) {
	c.Limits, c.CacheSize, c.Buffer, c.SingleProcess = f.limits, f.cacheSeries, f.buffer, f.store.embedded()
	c.Limits.RefuseInfinities = !f.infinities
	// On one machine the cells that an hour was written in are cheaply made one; HBase would keep the old ones until its
	// next major compaction, and OpenTSDB can do the same there.
	c.Buffer.Merge = f.store.embedded()
	c.Buffer.MaxBytes = int64(f.maxBuffered)
	c.Buffer.NewDecoder = newBlockDecoder
	c.Buffer.Address = address
	return ingest.New(c)
}

// memory makes the part of the series index that is in memory.
func (f *serveFlags) memory(c index.MemoryConfig) (*index.Memory, error) {
	if c.Settings.IndexComplete && (f.store.embedded() || f.refresh > 0) {
		c.MaxSeries = f.indexSeries
	}
	if !f.store.embedded() {
		// Without an index in memory, too: others that have one are told of new series.
		c.Refresh = cmp.Or(f.refresh, 10*time.Second)
	}
	return index.NewMemory(c)
}

// costs are those of the store's calls.
func (f *serveFlags) costs() query.Costs {
	if f.store.embedded() {
		return query.EmbeddedCosts()
	}
	return query.HBaseCosts()
}

// adopt reads the settings of the store, and makes the tables of a new embedded one. In a cluster that is for init to
// do: who starts serve with a wrong address shall not find tables there afterwards.
func (f *serveFlags) adopt(ctx context.Context, logger *slog.Logger, st store.Store) (settings catalog.Settings,
	err error) {
	attrs := []any{"store", f.store.url}
	if f.store.embedded() {
		var created []string
		settings, created, err = catalog.Init(ctx, st, f.store.systemTable, f.settings.requested())
		attrs = append(attrs, "created", created)
	} else {
		settings, err = catalog.Open(ctx, st, f.store.systemTable, f.settings.requested())
	}
	if err != nil {
		return settings, initHint(err)
	}
	// A store that an older promtsd has set up has no table of exemplars.
	if err := st.CreateTable(ctx, settings.Tables.ExemplarTable(0)); err != nil {
		return settings, fmt.Errorf("make the table of exemplars: %w", err)
	}
	for _, s := range settings.Text() {
		attrs = append(attrs, s[0], s[1])
	}
	logger.Info("store is open", attrs...)
	if !settings.IndexComplete {
		logger.Warn("the series index is not known to be complete: queries find series by row keys, which is slow; " +
			"run promtsd index build")
	}
	return settings, nil
}
