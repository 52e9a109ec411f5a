package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	dial    rpc.Config    // but for Addr
	last    atomic.Uint32 // index of the one that answered last
}

func newRPCRegistry(cfg *Config) *rpcRegistry {
	return &rpcRegistry{servers: cfg.Masters, dial: rpc.Config{
		Service: wire.ClientMetaService, User: cfg.User, TLS: cfg.TLS, Auth: cfg.Auth, Dial: cfg.Dial,
		WriteTimeout: cfg.RPCTimeout, StallTimeout: cfg.RPCTimeout, Logger: cfg.Logger,
	}}
}

func (r *rpcRegistry) metaServer(ctx context.Context) (wire.ServerName, error) {
	return ask(ctx, r, wire.MethodGetMetaRegionLocations, func(answer []byte) (wire.ServerName, error) {
		locations, err := wire.ParseGetMetaRegionLocationsResponse(answer)
		if err != nil {
			return wire.ServerName{}, err
		}
		for _, l := range locations {
			if l.Region.ReplicaID == 0 && l.Server.Host != "" {
				return l.Server, nil
			}
		}
		return wire.ServerName{}, errNoMeta
	})
}

func (r *rpcRegistry) master(ctx context.Context) (wire.ServerName, error) {
	return ask(ctx, r, wire.MethodGetActiveMaster, wire.ParseGetActiveMasterResponse)
}

func (r *rpcRegistry) clusterID(ctx context.Context) (string, error) {
	return ask(ctx, r, wire.MethodGetClusterID, wire.ParseGetClusterIDResponse)
}

// errNoMeta says that nobody serves hbase:meta at the moment.
var errNoMeta = errors.New("hbase:meta is not assigned to a server")

// ask puts a question to the servers until one gives an answer that parse accepts.
func ask[T any](ctx context.Context, r *rpcRegistry, method string, parse func(answer []byte) (T, error)) (T, error) {
	value, err := askInTurn(ctx, r.servers, &r.last, func(ctx context.Context, addr string) (value T, err error) {
		err = r.askOne(ctx, addr, method, func(answer []byte) error {
			value, err = parse(answer)
			return err
		})
		return value, err
	})
	if err != nil {
		return value, fmt.Errorf("look up cluster: %w", err)
	}
	return value, nil
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

// askAfter is how long a server may be silent before another one is asked beside it.
const askAfter = 500 * time.Millisecond

// askInTurn puts a question to one server after the other until one answers, and returns that, or all that went wrong.
// The next server is asked as soon as one has failed, or none has answered for askAfter or, where there is less time,
// for the server's part of it: those that were asked before may answer still. It begins with the server that answered
// last, whose index is in last. Each ask has to end soon after its context, and has when askInTurn returns.
func askInTurn[T any](
	ctx context.Context, servers []string, last *atomic.Uint32, ask func(ctx context.Context, addr string) (T, error),
) (T, error) {
	type answer struct {
		server uint32
		value  T
		err    error
	}
	n := uint32(len(servers))
	answers := make(chan answer, n)
	ctx, cancel := context.WithCancel(ctx)
	var asks sync.WaitGroup
	defer asks.Wait()
	defer cancel()

	patience := askAfter
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/time.Duration(n+1))
	}
	next := time.NewTicker(max(patience, time.Millisecond))
	defer next.Stop()
	var errs []error
	for first, asked := last.Load(), uint32(0); len(errs) < len(servers); {
		if asked < n {
			server := (first + asked) % n
			asked++
			asks.Go(func() {
				value, err := ask(ctx, servers[server])
				answers <- answer{server, value, err}
			})
		}
		next.Reset(max(patience, time.Millisecond))
		select {
		case a := <-answers:
			if a.err == nil {
				last.Store(a.server)
				return a.value, nil
			}
			errs = append(errs, a.err)
		case <-next.C:
		}
	}
	var none T
	return none, errors.Join(errs...)
}

func cloned(cfg *tls.Config) *tls.Config {
	if cfg == nil {
		return nil
	}
	return cfg.Clone()
}
