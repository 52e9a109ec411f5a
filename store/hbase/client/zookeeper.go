package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// zkRegistry reads the cluster's nodes in ZooKeeper. Each look-up opens a session and closes it again: look-ups are
// rare, and a session kept open would have to be watched and renewed, and costs the quorum something all the time.
type zkRegistry struct {
	quorum []string
	base   string
	logger *slog.Logger
}

// zkSession is what the quorum is told how long a silent session lives; ours are closed long before.
const zkSession = 10 * time.Second

func (z *zkRegistry) metaServer(ctx context.Context) (wire.ServerName, error) {
	data, err := z.read(ctx, wire.NodeMeta)
	if err != nil {
		return wire.ServerName{}, err
	}
	meta, err := wire.ParseMetaNode(data)
	if err == nil && meta.State != wire.RegionOpen {
		err = errNoMeta
	}
	return meta.Server, err
}

func (z *zkRegistry) master(ctx context.Context) (wire.ServerName, error) {
	data, err := z.read(ctx, wire.NodeMaster)
	if err != nil {
		return wire.ServerName{}, err
	}
	return wire.ParseMasterNode(data)
}

func (z *zkRegistry) clusterID(ctx context.Context) (string, error) {
	data, err := z.read(ctx, wire.NodeID)
	if err != nil {
		return "", err
	}
	return wire.ParseIDNode(data)
}

// read returns the data of a node below the base node.
func (z *zkRegistry) read(ctx context.Context, node string) ([]byte, error) {
	name := path.Join(z.base, node)
	data, err := z.get(ctx, name)
	if errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("%w: nothing serves there yet, or the base node is another one than %s", err, z.base)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from ZooKeeper at %v: %w", name, z.quorum, err)
	}
	return data, nil
}

func (z *zkRegistry) get(ctx context.Context, name string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn, events, err := zk.Connect(z.quorum, zkSession, zk.WithLogInfo(false), zk.WithLogger((*zkLogger)(z)),
		zk.WithHostProvider(&rotation{}))
	if err != nil {
		return nil, err
	}
	// Closing makes the Get below return, and the session's goroutines end; the events end after them.
	stop := context.AfterFunc(ctx, conn.Close)
	data, _, err := conn.Get(name)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	conn.Close()
	for range events {
		continue // their end is that of the session's goroutines
	}
	return data, err
}

// zkLogger passes on what the ZooKeeper library has to say, which is about connections that could not be made.
type zkLogger zkRegistry

func (l *zkLogger) Printf(format string, args ...any) {
	l.logger.Debug("zookeeper: " + fmt.Sprintf(format, args...))
}

// rotation hands out the quorum's servers in turn. Other than the library's own it resolves none of them beforehand:
// one name that cannot be resolved must not keep the client from the others.
type rotation struct {
	servers []string
	next    int
	since   int // servers handed out since one worked
}

func (r *rotation) Init(servers []string) error {
	r.servers = servers
	return nil
}

func (r *rotation) Len() int { return len(r.servers) }

func (r *rotation) Next() (server string, retryStart bool) {
	server = r.servers[r.next%len(r.servers)]
	r.next++
	r.since++
	return server, r.since > len(r.servers)
}

func (r *rotation) Connected() { r.since = 0 }
