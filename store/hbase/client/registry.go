package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// registry knows where the cluster is: the way in for a client that knows nothing yet, and the place to ask again when
// what it knew has changed.
type registry interface {
	// metaServer is the region server of hbase:meta.
	metaServer(ctx context.Context) (wire.ServerName, error)
	// master is the active master.
	master(ctx context.Context) (wire.ServerName, error)
	// clusterID is the cluster's own id.
	clusterID(ctx context.Context) (string, error)
}

// rpcRegistry asks masters and region servers, any of which can answer. Each question gets a connection of its own:
// they are rare, and the server that is asked next may be another one.
type rpcRegistry struct {
	servers []string
	dial    rpc.Config // but for Addr
	next    atomic.Uint32
}

func newRPCRegistry(cfg *Config) *rpcRegistry {
	return &rpcRegistry{servers: cfg.Masters, dial: rpc.Config{
		Service: wire.ClientMetaService, User: cfg.User, TLS: cfg.TLS, Auth: cfg.Auth, Dial: cfg.Dial,
		WriteTimeout: cfg.RPCTimeout, StallTimeout: cfg.RPCTimeout, Logger: cfg.Logger,
	}}
}

func (r *rpcRegistry) metaServer(ctx context.Context) (server wire.ServerName, err error) {
	err = r.ask(ctx, wire.MethodGetMetaRegionLocations, func(answer []byte) error {
		locations, err := wire.ParseGetMetaRegionLocationsResponse(answer)
		if err != nil {
			return err
		}
		for _, l := range locations {
			if l.Region.ReplicaID == 0 && l.Server.Host != "" {
				server = l.Server
				return nil
			}
		}
		return errNoMeta
	})
	return server, err
}

func (r *rpcRegistry) master(ctx context.Context) (server wire.ServerName, err error) {
	err = r.ask(ctx, wire.MethodGetActiveMaster, func(answer []byte) error {
		server, err = wire.ParseGetActiveMasterResponse(answer)
		return err
	})
	return server, err
}

func (r *rpcRegistry) clusterID(ctx context.Context) (id string, err error) {
	err = r.ask(ctx, wire.MethodGetClusterID, func(answer []byte) error {
		id, err = wire.ParseGetClusterIDResponse(answer)
		return err
	})
	return id, err
}

// errNoMeta says that nobody serves hbase:meta at the moment.
var errNoMeta = errors.New("hbase:meta is not assigned to a server")

// ask puts a question to one server after the other until one gives an answer that parse accepts. It starts with the
// one that answered last.
func (r *rpcRegistry) ask(ctx context.Context, method string, parse func(answer []byte) error) error {
	var errs []error
	first := r.next.Load()
	for i := range uint32(len(r.servers)) {
		at := (first + i) % uint32(len(r.servers))
		err := r.askOne(ctx, r.servers[at], method, parse)
		if err == nil {
			r.next.Store(at)
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("look up cluster: %w", errors.Join(errs...))
}

func (r *rpcRegistry) askOne(ctx context.Context, addr, method string, parse func(answer []byte) error) error {
	cfg := r.dial
	cfg.Addr = addr
	cfg.TLS = cloned(cfg.TLS)
	conn, err := rpc.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	response, err := conn.CallMessage(ctx, method, wire.Empty{})
	if err != nil {
		return err
	}
	defer response.Release()
	if err := parse(response.Param); err != nil {
		return fmt.Errorf("ask %s: %w", addr, err)
	}
	return nil
}

func cloned(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	return cfg.Clone()
}
