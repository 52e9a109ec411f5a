package client

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path"
	"sync/atomic"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// zkRegistry reads the cluster's nodes in ZooKeeper. Each look-up opens a session and closes it again: look-ups are
// rare, and a session kept open would have to be watched and renewed, and costs the quorum something all the time.
type zkRegistry struct {
	quorum []string
	base   string
	dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	last   atomic.Uint32 // index of the server that answered last
}

func newZKRegistry(cfg *Config) *zkRegistry {
	z := &zkRegistry{quorum: cfg.ZooKeeper, base: cfg.ZNode, dial: cfg.Dial}
	if z.dial == nil {
		z.dial = new(net.Dialer).DialContext // a session is too short for keepalive
	}
	return z
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
	data, err := askInTurn(ctx, z.quorum, &z.last, func(ctx context.Context, addr string) ([]byte, error) {
		data, err := z.get(ctx, addr, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", addr, err)
		}
		return data, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s from ZooKeeper: %w", name, err)
	}
	return data, nil
}

// get reads a node in a session of its own with one server.
func (z *zkRegistry) get(ctx context.Context, addr, name string) ([]byte, error) {
	conn, err := z.dial(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	// The end of the context wakes up whatever reads or writes.
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	data, err := converse(conn, name)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return data, err
}

// converse holds a session over a fresh connection.
func converse(conn net.Conn, name string) ([]byte, error) {
	const get, end = 1, 2
	if _, err := conn.Write(wire.AppendZKConnect(nil, uint32(zkSession.Milliseconds()))); err != nil {
		return nil, err
	}
	connected, err := readZKFrame(conn)
	if err == nil {
		err = wire.ParseZKConnected(connected)
	}
	if err != nil {
		return nil, fmt.Errorf("not a ZooKeeper server, as it seems: begin a session: %w", err)
	}
	if _, err := conn.Write(wire.AppendZKGet(nil, get, name)); err != nil {
		return nil, err
	}
	for {
		frame, err := readZKFrame(conn)
		if err != nil {
			return nil, err
		}
		reply, err := wire.ParseZKReply(frame)
		if err != nil {
			return nil, err
		}
		if reply.XID != get {
			continue
		}
		// What becomes of this is nothing to wait for: the session ends by its timeout, too.
		_, _ = conn.Write(wire.AppendZKClose(nil, end))
		switch reply.Error {
		case 0:
			return reply.Data()
		case wire.ZKNoNode:
			return nil, fmt.Errorf("there is no such node: nothing serves there yet, or the base node is another one than %s",
				path.Dir(name))
		default:
			return nil, fmt.Errorf("ZooKeeper's error %d", reply.Error)
		}
	}
}

func readZKFrame(r io.Reader) ([]byte, error) {
	var size [wire.FrameLength]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > wire.MaxZKFrame {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d are allowed", wire.ErrMalformed, n,
			wire.MaxZKFrame)
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(r, frame)
	return frame, err
}
