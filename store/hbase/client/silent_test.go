package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// listen runs a server of raw connections until the test ends, and returns its address.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			wg.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, conn := range conns {
			conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// silent reads, and never answers, as a process that is stopped.
func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

// zooKeeper answers as a quorum's server that knows the fake's first server.
func zooKeeper(t *testing.T, f *atomic.Pointer[fake]) func(net.Conn) {
	frame := func(conn net.Conn) []byte {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return nil
		}
		b := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, b); err != nil {
			return nil
		}
		return b
	}
	return func(conn net.Conn) {
		send := func(b []byte) {
			_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
		}
		if len(frame(conn)) != 45 {
			t.Error("connect request is not of 45 bytes")
			return
		}
		send(make([]byte, 37))
		// Something that nobody asked for comes first.
		send(append([]byte{0xff, 0xff, 0xff, 0xfe}, make([]byte, 12)...))
		request := frame(conn)
		if len(request) < 13 {
			return
		}
		reply := append(append([]byte{}, request[:4]...), make([]byte, 12)...)
		name := f.Load().servers[0].name()
		var data []byte
		switch path.Base(string(request[12 : len(request)-1])) {
		case wire.NodeMeta:
			data = wire.AppendMetaNode(nil, wire.MetaRegionServer{Server: name, State: wire.RegionOpen})
		case wire.NodeMaster:
			data = wire.AppendMasterNode(nil, name)
		default:
			binary.BigEndian.PutUint32(reply[12:], ^uint32(100)) // no such node
			send(reply)
			return
		}
		reply = binary.BigEndian.AppendUint32(reply, uint32(len(data)))
		send(append(append(reply, data...), make([]byte, 68)...))
		if request := frame(conn); len(request) != 8 {
			t.Errorf("session ended with %x, want a close", request)
		}
	}
}

// One of those that can introduce the client to its cluster is silent, whichever it is: that costs a moment.
func TestRegistry_PassesOverASilentServer(t *testing.T) {
	for name, test := range map[string]struct {
		bad    func(net.Conn) // nil: nobody is there
		quorum bool
	}{
		"masters": {silent, false}, "masters that are not there": {nil, false},
		"zookeeper": {silent, true}, "zookeeper that is not there": {nil, true},
	} {
		for _, first := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				var cluster atomic.Pointer[fake]
				bad, good := "127.0.0.1:1", listen(t, zooKeeper(t, &cluster))
				if test.bad != nil {
					bad = listen(t, test.bad)
				}
				f, c := startFake(t, 1, func(cfg *client.Config) {
					if test.quorum {
						cfg.Masters, cfg.ZooKeeper = nil, inFront(first, bad, good)
					} else {
						cfg.Masters = inFront(first, bad, cfg.Masters[0])
					}
				})
				cluster.Store(f)
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second) // less than an attempt may take
				defer cancel()
				if _, err := c.Regions(ctx, "t"); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// ZooKeeper is dialled as HBase's servers are: what stands between promtsd and them for its sake stands before it, too.
func TestRegistry_DialsZooKeeperAsItIsTold(t *testing.T) {
	var cluster atomic.Pointer[fake]
	addr := listen(t, zooKeeper(t, &cluster))
	f, c := startFake(t, 1, func(cfg *client.Config) {
		cfg.Masters, cfg.ZooKeeper = nil, []string{"behind.invalid:2181"}
		cfg.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
			if to == "behind.invalid:2181" {
				to = addr
			}
			return new(net.Dialer).DialContext(ctx, network, to)
		}
	})
	cluster.Store(f)
	if _, err := c.Regions(t.Context(), "t"); err != nil {
		t.Error(err)
	}
}

func inFront(first bool, a, b string) []string {
	if first {
		return []string{a, b}
	}
	return []string{b, a}
}

// When nobody answers, a verb ends with its context, or its time, and says whom it has asked. Closing the client ends
// it at once.
func TestRegistry_WaitsForSilentServersNoLongerThanAsked(t *testing.T) {
	for name, change := range map[string]func(cfg *client.Config, addr string){
		"masters":   func(cfg *client.Config, addr string) { cfg.Masters = []string{addr} },
		"zookeeper": func(cfg *client.Config, addr string) { cfg.Masters, cfg.ZooKeeper = nil, []string{addr} },
	} {
		for verb, run := range map[string]func(ctx context.Context, c *client.Client) error{
			"locate":     func(ctx context.Context, c *client.Client) error { _, err := c.Regions(ctx, "t"); return err },
			"list":       func(ctx context.Context, c *client.Client) error { _, err := c.Tables(ctx); return err },
			"cluster id": func(ctx context.Context, c *client.Client) error { _, err := c.ClusterID(ctx); return err },
		} {
			t.Run(name+", "+verb, func(t *testing.T) {
				addr := listen(t, silent)
				_, c := startFake(t, 1, func(cfg *client.Config) {
					change(cfg, addr)
					cfg.OperationTimeout = 500 * time.Millisecond
				})
				ended := make(chan error)
				go func() { ended <- run(context.Background(), c) }()
				await := func() error {
					select {
					case err := <-ended:
						return err
					case <-time.After(30 * time.Second):
						t.Fatal("it waits for ever")
						return nil
					}
				}
				if err := await(); !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("after its time: got error %v", err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { ended <- run(ctx, c) }()
				cancel()
				if err := await(); !errors.Is(err, context.Canceled) {
					t.Errorf("after it was cancelled: got error %v", err)
				}
			})
		}
	}
}

func TestClose_EndsLookupsOfSilentServers(t *testing.T) {
	for name, change := range map[string]func(cfg *client.Config, addr string){
		"masters":   func(cfg *client.Config, addr string) { cfg.Masters = []string{addr} },
		"zookeeper": func(cfg *client.Config, addr string) { cfg.Masters, cfg.ZooKeeper = nil, []string{addr} },
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 10)
			addr := listen(t, func(conn net.Conn) {
				asked <- struct{}{}
				silent(conn)
			})
			_, c := startFake(t, 1, func(cfg *client.Config) {
				change(cfg, addr)
				cfg.RPCTimeout = time.Minute
			})
			ended := make(chan error, 2)
			go func() { _, err := c.Regions(context.Background(), "t"); ended <- err }()
			go func() { _, err := c.Tables(context.Background()); ended <- err }()
			<-asked
			<-asked
			go func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				ended <- client.ErrClosed
			}()
			for range 3 {
				select {
				case err := <-ended:
					if !errors.Is(err, client.ErrClosed) {
						t.Errorf("got error %v", err)
					}
				case <-time.After(30 * time.Second):
					t.Fatal("somebody waits for ever")
				}
			}
		})
	}
}
