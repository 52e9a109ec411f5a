package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/promtsd/promtsd/store/hbase/wire"
)

// Config says how to connect.
type Config struct {
	// Addr is the server's host:port. Required.
	Addr string
	// Service is what the connection is bound to, one of wire.ClientService and its like. Required.
	Service string
	// User is the name the server is told. Required by servers.
	User string
	// TLS makes the connection encrypted. Without a ServerName it is filled in from Addr. Default: plain TCP.
	TLS *tls.Config
	// Compression of cell blocks in both directions. Default: none. A server that lacks the codec closes the
	// connection.
	Compression wire.Compression
	// Auth authenticates the connection. Default: Simple.
	Auth Authenticator
	// Dial opens the TCP connection. Default: a net.Dialer with keepalive.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// MaxFrame bounds a response, in bytes, compressed and not. Default: 256 MiB.
	MaxFrame int
	// WriteTimeout bounds one gathering write, in which the server must take at least one whole request. When it passes
	// the connection is broken. Default: 10 s.
	WriteTimeout time.Duration
	// StallTimeout is how long the server may be silent while calls wait, one or several one after the other: a call that
	// ends without an answer when nothing was received for so long, or one response is on its way for so long, takes the
	// connection with it. Default: 30 s.
	StallTimeout time.Duration
	// Observer is told of every call. Default: nobody.
	Observer Observer
	// Logger gets one line when the connection breaks. Default: none.
	Logger *slog.Logger
}

// Authenticator proves to the server who the client is.
type Authenticator interface {
	// Method is the byte of the preamble.
	Method() wire.AuthMethod
	// Handshake runs between the preamble and the connection header. It returns what the rest of the conversation runs
	// over: conn itself, or one that wraps it where frames are to be signed or encrypted. The deadline of ctx is set on
	// conn already.
	Handshake(ctx context.Context, conn net.Conn) (net.Conn, error)
}

// Simple is the authentication of servers without security: the user name is believed.
type Simple struct{}

// Method implements Authenticator.
func (Simple) Method() wire.AuthMethod { return wire.AuthSimple }

// Handshake implements Authenticator; there is none.
func (Simple) Handshake(_ context.Context, conn net.Conn) (net.Conn, error) { return conn, nil }

// Observer is told of calls. Its methods are called by the goroutines of the callers, and must be fast.
type Observer interface {
	// Started is called before a request is queued. size is the request's bytes.
	Started(method string, size int)
	// Finished is called once for each Started. size is the response's bytes, 0 when there was none; err is what Call
	// returns.
	Finished(method string, took time.Duration, size int, err error)
}

type nobody struct{}

func (nobody) Started(string, int)                        {}
func (nobody) Finished(string, time.Duration, int, error) {}

const (
	defaultMaxFrame     = 256 << 20
	defaultWriteTimeout = 10 * time.Second
	defaultStallTimeout = 30 * time.Second
	keepAliveIdle       = 15 * time.Second
	keepAliveInterval   = 5 * time.Second
	keepAliveCount      = 4
)

// withDefaults checks cfg and fills in what was left empty.
func (cfg Config) withDefaults() (Config, error) {
	if cfg.Addr == "" || cfg.Service == "" {
		return cfg, errors.New("address and service are required")
	}
	if cfg.Auth == nil {
		cfg.Auth = Simple{}
	}
	if cfg.Dial == nil {
		dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		}}
		cfg.Dial = dialer.DialContext
	}
	if cfg.TLS != nil && cfg.TLS.ServerName == "" && !cfg.TLS.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(cfg.Addr)
		if err != nil {
			return cfg, err
		}
		cfg.TLS = cfg.TLS.Clone()
		cfg.TLS.ServerName = host
	}
	if cfg.MaxFrame <= 0 {
		cfg.MaxFrame = defaultMaxFrame
	}
	if cfg.WriteTimeout <= 0 {
		cfg.WriteTimeout = defaultWriteTimeout
	}
	if cfg.StallTimeout <= 0 {
		cfg.StallTimeout = defaultStallTimeout
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, nil
}
