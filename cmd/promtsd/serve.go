package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"
	"github.com/oklog/run"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"

	"github.com/promtsd/promtsd/adapter"
	"github.com/promtsd/promtsd/mapping/catalog"
	"github.com/promtsd/promtsd/mapping/index"
	"github.com/promtsd/promtsd/mapping/ingest"
	"github.com/promtsd/promtsd/mapping/uid"
	"github.com/promtsd/promtsd/query"
	"github.com/promtsd/promtsd/store"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	web      web.FlagConfig
	store    *storeFlags
	settings *settingFlags

	drain time.Duration

	maxBody, maxInFlight units.Base2Bytes
	limits               ingest.Limits
	infinities           bool
	cacheSeries          int
	cacheNames           int

	read                    adapter.ReadLimits
	maxRequest, maxResponse units.Base2Bytes
	maxSeries               int
}

func addServe(app *kingpin.Application) (string, command) {
	cmd := app.Command("serve", "Serve remote write and remote read (the default). An embedded store is made on first start.").Default()
	f := &serveFlags{}
	f.web.WebListenAddresses = cmd.Flag("web.listen-address", "Address to listen on; may be given more than once.").
		Default(":9201").Strings()
	f.web.WebConfigFile = cmd.Flag("web.config.file", "File that turns on TLS or authentication, in the format of "+
		"Prometheus's exporter toolkit.").Default("").String()
	f.web.WebSystemdSocket = cmd.Flag("web.systemd-socket", "Listen on the sockets that systemd passes.").Bool()
	cmd.Flag("web.drain-timeout", "How long requests under way may take to finish after SIGTERM.").
		Default("20s").DurationVar(&f.drain)
	f.store, f.settings = addStoreFlags(cmd), addSettingFlags(cmd)

	cmd.Flag("write.max-body-bytes", "Largest remote-write request, as sent and inflated.").Default("32MiB").BytesVar(&f.maxBody)
	cmd.Flag("write.max-in-flight-bytes", "Memory of all remote-write requests together; past it they are answered 503, "+
		"to be sent again.").Default("256MiB").BytesVar(&f.maxInFlight)
	cmd.Flag("write.max-labels", "Labels of a series, its name included.").Default("128").IntVar(&f.limits.Labels)
	cmd.Flag("write.max-label-name-bytes", "Length of a label name.").Default("1024").IntVar(&f.limits.LabelName)
	cmd.Flag("write.max-label-value-bytes", "Length of a label value, and of a metric name.").
		Default("8192").IntVar(&f.limits.LabelValue)
	cmd.Flag("write.max-future", "How far ahead of the clock a sample may be; 0 is any time.").
		Default("10m").DurationVar(&f.limits.Future)
	cmd.Flag("write.infinities", "Store infinite values. With --no-write.infinities they are refused with 400, for those "+
		"who share the tables with OpenTSDB, whose queries fail on them.").Default("true").BoolVar(&f.infinities)
	cmd.Flag("write.cache-series", "Series that the write path keeps at hand, at some 500 bytes each; more than are "+
		"active is best.").Default("1000000").IntVar(&f.cacheSeries)
	cmd.Flag("uid.cache-entries", "Names and UIDs kept in memory, in each direction.").Default("1000000").IntVar(&f.cacheNames)

	cmd.Flag("read.max-concurrent", "Remote reads served at a time; others wait.").Default("10").IntVar(&f.read.MaxConcurrent)
	cmd.Flag("read.max-request-bytes", "Largest remote-read request.").Default("4MiB").BytesVar(&f.maxRequest)
	cmd.Flag("read.max-samples", "Samples of a remote-read answer in the SAMPLES form, which is built in memory; the "+
		"streamed form has no bound.").Default("50000000").IntVar(&f.read.MaxSamples)
	cmd.Flag("read.max-response-bytes", "Size of a remote-read answer in the SAMPLES form.").
		Default("512MiB").BytesVar(&f.maxResponse)
	cmd.Flag("query.max-series", "Series that one selector may find; 0 is any number.").Default("1000000").IntVar(&f.maxSeries)
	return cmd.FullCommand(), f.serve
}

// serve builds the parts bottom up, serves until ctx ends, and takes the parts down in the reverse order.
func (f *serveFlags) serve(ctx context.Context, env environment) (err error) {
	logger := env.logger
	logger.Info("starting promtsd", "version", version.Info(), "build", version.BuildContext())
	if _, err := memlimit.SetGoMemLimitWithOpts(memlimit.WithRatio(0.9), memlimit.WithProvider(
		memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem))); err != nil {
		logger.Warn("memory limit not set", "err", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(versioncollector.NewCollector("promtsd"), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	st, err := f.store.open(logger, registry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()

	settings, err := f.adopt(ctx, logger, st)
	if err != nil {
		return err
	}
	uids := uid.New(uid.Config{
		Store: st, Table: settings.Tables.UID, Schema: settings.Schema, Names: settings.Names,
		CacheEntries: f.cacheNames, Registerer: registry, Logger: logger,
	})
	defer uids.Close()
	f.limits.RefuseInfinities = !f.infinities
	appender := ingest.New(ingest.Config{
		Store: st, Settings: settings, UIDs: uids, Limits: f.limits, CacheSize: f.cacheSeries,
		Registerer: registry, Now: time.Now,
	})
	querier := query.New(query.Config{
		Store: st, Settings: settings, MaxSeries: f.maxSeries, Registerer: registry, Logger: logger,
		Index: index.NewReader(index.Config{Store: st, Settings: settings, UIDs: uids}),
	})
	f.read.MaxRequestBytes, f.read.MaxResponseBytes = int(f.maxRequest), int(f.maxResponse)
	handler, err := adapter.New(adapter.Config{
		Appender: appender, Querier: querier,
		Write: adapter.WriteLimits{MaxBodyBytes: int(f.maxBody), MaxInFlightBytes: int(f.maxInFlight)},
		Read:  f.read, Registerer: registry, Gatherer: registry, Logger: logger, Version: version.Version,
	})
	if err != nil {
		return err
	}
	handler.SetReady()
	return f.listen(ctx, logger, handler)
}

// adopt reads the settings of the store, and makes the tables of a new embedded one. In a cluster that is for init to do:
// who starts serve with a wrong address shall not find tables there afterwards.
func (f *serveFlags) adopt(ctx context.Context, logger *slog.Logger, st store.Store) (settings catalog.Settings, err error) {
	attrs := []any{"store", f.store.url}
	if f.store.embedded() {
		var created []string
		settings, created, err = catalog.Init(ctx, st, f.store.own, f.settings.asked())
		attrs = append(attrs, "created", created)
	} else {
		settings, err = catalog.Open(ctx, st, f.store.own, f.settings.asked())
	}
	if err != nil {
		return settings, initHint(err)
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

// listen serves until ctx ends, then lets the requests under way finish.
func (f *serveFlags) listen(ctx context.Context, logger *slog.Logger, handler *adapter.Handler) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       2 * time.Minute, // of a whole request: a sender that trickles holds memory
		IdleTimeout:       5 * time.Minute,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	var g run.Group
	stop := make(chan struct{})
	g.Add(func() error {
		select {
		case <-ctx.Done():
			logger.Info("stopping: requests under way are finished, new ones refused")
		case <-stop:
		}
		return nil
	}, func(error) { close(stop) })
	g.Add(func() error {
		if err := web.ListenAndServe(server, &f.web, logger); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve HTTP: %w", err)
		}
		return nil
	}, func(error) {
		handler.Drain()
		drain, cancel := context.WithTimeout(context.Background(), f.drain)
		defer cancel()
		if err := server.Shutdown(drain); err != nil {
			logger.Warn("requests were cut off", "err", err, "drain_timeout", f.drain)
			_ = server.Close()
		}
		logger.Info("stopped")
	})
	return g.Run()
}
