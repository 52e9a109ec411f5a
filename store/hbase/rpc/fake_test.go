package rpc_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/rpc"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// server speaks the server's side of the protocol through the codec of package wire. What it does with a request is up
// to the test; it answers nothing by itself, and it does not check the call's deadline.
type server struct {
	t        testing.TB
	listener net.Listener
	handle   func(*peer, request)

	wg    sync.WaitGroup
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

// request is a request as the server has read it.
type request struct {
	wire.RequestHeader
	param []byte
	cells []byte
}

// peer is the server's side of one connection.
type peer struct {
	net.Conn
	auth   wire.AuthMethod
	header wire.ConnectionHeader
}

// serve starts a server that calls handle, on the goroutine of the connection, for each request.
func serve(t testing.TB, config *tls.Config, handle func(*peer, request)) *server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	s := &server{t: t, listener: listener, handle: handle}
	s.wg.Go(s.accept)
	t.Cleanup(s.stop)
	return s
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer conn.Close()
			s.converse(&peer{Conn: conn})
		})
	}
}

func (s *server) stop() {
	s.listener.Close()
	s.mu.Lock()
	for _, conn := range s.conns {
		conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *server) converse(p *peer) {
	r := bufio.NewReader(p)
	preamble := make([]byte, wire.PreambleSize)
	if _, err := io.ReadFull(r, preamble); err != nil {
		return
	}
	var ok bool
	if p.auth, ok = wire.ParsePreamble(preamble); !ok {
		s.t.Errorf("preamble: got %q", preamble)
		return
	}
	header, err := readFrame(r)
	if err != nil {
		return
	}
	if err := p.header.Parse(header); err != nil {
		s.t.Error(err)
		return
	}
	for {
		frame, err := readFrame(r)
		if err != nil {
			return
		}
		var q request
		if q.RequestHeader, q.param, q.cells, err = wire.ParseRequest(frame); err != nil {
			s.t.Error(err)
			return
		}
		s.handle(p, q)
	}
}

func readFrame(r io.Reader) ([]byte, error) {
	total := make([]byte, wire.FrameLength)
	if _, err := io.ReadFull(r, total); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(total))
	_, err := io.ReadFull(r, frame)
	return frame, err
}

// answer sends a response; the client may be gone.
func (p *peer) answer(q request, result, cells []byte) {
	_, _ = p.Write(wire.AppendResponse(nil, wire.ResponseHeader{CallID: q.CallID}, result, cells))
}

// refuse answers with an exception.
func (p *peer) refuse(callID uint32, exception *wire.Exception) {
	_, _ = p.Write(wire.AppendResponse(nil, wire.ResponseHeader{CallID: callID, Exception: exception}, nil, nil))
}

// echo answers with what came.
func echo(p *peer, q request) { p.answer(q, q.param, q.cells) }

// dial connects to the server.
func (s *server) dial(change func(*rpc.Config)) *rpc.Conn {
	s.t.Helper()
	cfg := rpc.Config{Addr: s.listener.Addr().String(), Service: wire.ClientService, User: "tester"}
	if change != nil {
		change(&cfg)
	}
	c, err := rpc.Dial(s.t.Context(), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return c
}

// text calls with a param of pieces.
func text(ctx context.Context, c *rpc.Conn, pieces ...string) (string, error) {
	q := rpc.Request{Method: "Echo"}
	for _, p := range pieces {
		q.Param = append(q.Param, []byte(p))
	}
	response, err := c.Call(ctx, &q)
	if err != nil {
		return "", err
	}
	defer response.Release()
	return string(response.Param), nil
}

// certificate makes a certificate for 127.0.0.1 and the pool that trusts it.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}
