package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Config says how to reach a cluster and how much to ask of it.
type Config struct {
	// ZooKeeper are the host:port of the quorum that knows the cluster. Required unless Masters is given.
	ZooKeeper []string
	// ZNode is the cluster's base node in ZooKeeper. Default: /hbase.
	ZNode string
	// Masters are the host:port of masters or region servers (HBase 2.5 and later), of which any one can introduce the
	// client to the cluster without ZooKeeper. Not to be given together with ZooKeeper.
	Masters []string

	// User is the name servers are told. Default: "hbase".
	User string
	// TLS encrypts all connections to HBase's servers. Default: plain TCP.
	TLS *tls.Config
	// Auth authenticates connections. Default: rpc.Simple.
	Auth rpc.Authenticator
	// Compression is that of cells on the wire. Default: none.
	Compression wire.Compression
	// Dial opens TCP connections to HBase's servers and to ZooKeeper. Default: a net.Dialer with keepalive.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// OperationTimeout bounds a verb, all its attempts together; the verb's context may end it before. Default: 2
	// minutes.
	OperationTimeout time.Duration
	// RPCTimeout bounds one attempt. Default: 20 s, or half of OperationTimeout if that is less, so that there is a second
	// one.
	RPCTimeout time.Duration
	// DialTimeout bounds one attempt to connect. Default: 5 s, or half of RPCTimeout if that is less.
	DialTimeout time.Duration
	// IdleTimeout is after how long without a call a connection is closed. Default: 5 minutes.
	IdleTimeout time.Duration

	// WriteBytes bounds the bytes of cells that all batches together have on their way; a Put beyond waits. Default:
	// 64 MiB.
	WriteBytes int
	// BatchBytes is the size of cells at which a batch sends what it holds for a region. Default: 384 KiB.
	BatchBytes int
	// RegionRPCs bounds the writing requests in flight to one region, and as many multi-gets. Default: 4.
	RegionRPCs int
	// ServerRPCs bounds the same to one server. Default: 24, a little less than a server has handlers, so that either
	// kind leaves some to the other one.
	ServerRPCs int
	// TableRegions bounds the regions of one table of which it is remembered where they are, in about 450 bytes each.
	// Default: 100,000.
	TableRegions int

	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Logger gets changes of state: a connection lost, a table located anew. Default: none.
	Logger *slog.Logger
}

const (
	defaultZNode            = "/hbase"
	defaultUser             = "hbase"
	defaultOperationTimeout = 2 * time.Minute
	defaultRPCTimeout       = 20 * time.Second
	defaultDialTimeout      = 5 * time.Second
	defaultIdleTimeout      = 5 * time.Minute
	defaultWriteBytes       = 64 << 20
	defaultBatchBytes       = 384 << 10
	defaultRegionRPCs       = 4
	defaultServerRPCs       = 24
	defaultTableRegions     = 100_000
)

// withDefaults checks cfg and fills in what was left empty.
func (cfg Config) withDefaults() (Config, error) {
	if (len(cfg.ZooKeeper) == 0) == (len(cfg.Masters) == 0) {
		return cfg, fmt.Errorf("configure client: %w", errors.New("either ZooKeeper or Masters is required"))
	}
	for _, addr := range append(append([]string(nil), cfg.ZooKeeper...), cfg.Masters...) {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return cfg, fmt.Errorf("configure client: %w", err)
		}
	}
	if cfg.ZNode == "" {
		cfg.ZNode = defaultZNode
	}
	if cfg.User == "" {
		cfg.User = defaultUser
	}
	positive(&cfg.OperationTimeout, defaultOperationTimeout)
	positive(&cfg.RPCTimeout, min(defaultRPCTimeout, cfg.OperationTimeout/2))
	positive(&cfg.DialTimeout, min(defaultDialTimeout, cfg.RPCTimeout/2))
	positive(&cfg.IdleTimeout, defaultIdleTimeout)
	positive(&cfg.WriteBytes, defaultWriteBytes)
	positive(&cfg.BatchBytes, defaultBatchBytes)
	positive(&cfg.RegionRPCs, defaultRegionRPCs)
	positive(&cfg.ServerRPCs, defaultServerRPCs)
	positive(&cfg.TableRegions, defaultTableRegions)
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}

// positive replaces what is not by the default.
func positive[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// Observer is told what happens, for metrics. Its methods are called by many goroutines and must be fast. The labels
// they are given take few values.
type Observer interface {
	// Observer is told of each request to a server, its bytes, and its end: what is in flight is their difference.
	rpc.Observer
	// Retry is told that a request is repeated. reason is the simple name of an exception of the server, or
	// "connection", "timeout", "no server" or "lookup".
	Retry(verb, reason string)
	// Moved is told that n regions of a table were found at another place than before, or are new.
	Moved(table string, n int)
}

type nobody struct{}

func (nobody) Started(string, int)                        {}
func (nobody) Finished(string, time.Duration, int, error) {}
func (nobody) Retry(string, string)                       {}
func (nobody) Moved(string, int)                          {}
