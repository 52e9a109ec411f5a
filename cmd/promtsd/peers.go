package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/exporter-toolkit/web"
	"go.yaml.in/yaml/v3"

	"github.com/promtsd/promtsd/adapter/peer"
	"github.com/promtsd/promtsd/mapping/journal"
	"github.com/promtsd/promtsd/query"
)

// peerFlags are the flags of how several promtsd on one HBase ask each other for the samples that they hold.
type peerFlags struct {
	listen     string
	advertise  string
	webConfig  string
	httpConfig string
}

func addPeerFlags(cmd *kingpin.CmdClause) *peerFlags {
	f := new(peerFlags)
	cmd.Flag("peer.listen-address",
		"Address on which other promtsd on the same HBase ask this one for samples that it still holds. "+
			"The embedded store has none.").Default(":9202").StringVar(&f.listen)
	cmd.Flag("peer.advertise-address",
		"Where others reach --peer.listen-address. The default is its own host, or else this host's name, "+
			"and its port.").PlaceHolder("HOST:PORT").StringVar(&f.advertise)
	cmd.Flag("peer.web.config.file", "As --web.config.file, for --peer.listen-address. The default is --web.config.file.").
		Default("").StringVar(&f.webConfig)
	cmd.Flag("peer.http.config.file", "File that says how other promtsd are asked where TLS or authentication is on, "+
		httpConfigHelp).
		Default("").StringVar(&f.httpConfig)
	return f
}

// check refuses what cannot be. Values are not shown: there may be secrets in what was meant as an address.
func (f *peerFlags) check(embedded bool) error {
	if embedded && f.advertise+f.webConfig+f.httpConfig != "" {
		return errors.New(
			"--peer.advertise-address, --peer.web.config.file and --peer.http.config.file count on HBase only: " +
				"no other promtsd can have the embedded store open")
	}
	if f.advertise != "" {
		if _, err := parsePeerURL("http://" + f.advertise); err != nil {
			return errors.New("--peer.advertise-address must be HOST:PORT, such as 10.0.0.7:9202")
		}
	}
	return nil
}

const (
	peerConnections = 256              // at --peer.listen-address
	peerTimeout     = 5 * time.Second  // for what another promtsd answers to one block of a query
	peerProbe       = 10 * time.Second // for asking oneself at the start
	probes          = 3                // of which one that says something counts
	peerMaxBytes    = 256 << 20        // that another promtsd may answer to one block of a query
)

// peerServer answers other promtsd, from before this one has a lease until it has none, and knows how they are asked.
type peerServer struct {
	logger   *slog.Logger
	listener net.Listener
	config   string // file of the listener's web configuration
	url      string // where others reach it
	client   *http.Client
	starting string // writer for which it answers itself before there is one

	server *http.Server
	served chan error // nil: it does not serve yet
}

// open begins to listen. webConfig is what --peer.web.config.file is by default.
func (f *peerFlags) open(webConfig string, registerer prometheus.Registerer, logger *slog.Logger) (_ *peerServer,
	err error) {
	p := &peerServer{
		logger: logger, config: f.webConfig, starting: "starting " + rand.Text(),
	}
	if p.config == "" {
		p.config = webConfig
	}
	if p.client, err = loadHTTPClient("peer.http.config.file", f.httpConfig); err != nil {
		return nil, err
	}
	scheme, err := webScheme(p.config)
	if err != nil {
		return nil, fmt.Errorf("web configuration %s of --peer.listen-address: %w", p.config, err)
	}
	if p.listener, err = net.Listen("tcp", f.listen); err != nil {
		return nil, fmt.Errorf("--peer.listen-address=%s: %w", f.listen, err)
	}
	host := f.advertise
	if host == "" {
		if host, err = reachable(f.listen, p.listener.Addr()); err != nil {
			p.listener.Close()
			return nil, err
		}
	}
	p.url = scheme + "://" + host
	connections, err := newConnections(peerConnections, "--peer.listen-address", registerer, p.logger)
	if err != nil {
		p.listener.Close()
		return nil, err
	}
	p.server = &http.Server{
		ReadHeaderTimeout: peerTimeout,
		ReadTimeout:       2 * peerTimeout,
		WriteTimeout:      4 * peerTimeout,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         connections.changed,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// reachable is where others reach a listener that was made for an address.
func reachable(address string, listener net.Addr) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("--peer.listen-address=%s: %w", address, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("%w: say where other promtsd reach this one by --peer.advertise-address", err)
		}
	}
	_, port, err := net.SplitHostPort(listener.String())
	return net.JoinHostPort(host, port), err
}

// webScheme is the scheme of a listener with a web configuration file, of which an empty name is none.
func webScheme(file string) (string, error) {
	if file == "" {
		return "http", nil
	}
	if err := web.Validate(file); err != nil {
		return "", err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var c struct {
		TLS web.TLSConfig `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(content, &c); err != nil {
		return "", err
	}
	if c.TLS.IsEnabled() {
		return "https", nil
	}
	return "http", nil
}

// serve answers for what a process holds, under the name that writer gives; failed is called when that ends unasked. It
// returns an error if others could not ask: this process asks itself as they would.
func (p *peerServer) serve(ctx context.Context, local peer.Local, writer func() journal.ID, failed func()) error {
	mux := http.NewServeMux()
	mux.Handle(peer.Path, peer.NewHandler(local, func() string {
		if id := writer(); id != 0 {
			return id.String()
		}
		return p.starting
	}))
	p.server.Handler = mux
	served := make(chan error, 1)
	p.served = served
	go func() {
		err := web.Serve(p.listener, p.server, &web.FlagConfig{WebConfigFile: &p.config}, p.logger)
		failed()
		served <- err
	}()
	return p.probe(ctx)
}

// probe asks this process as others would. The network may fail now and work later, and who cannot be reached is told
// of in the answers of others: an error is what time does not mend.
func (p *peerServer) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, peerProbe)
	defer cancel()
	var err error
	for range probes {
		if err = peer.Probe(ctx, p.client, p.url, p.starting); err == nil {
			return nil
		}
		if misconfigured(err) {
			return fmt.Errorf("other promtsd could not ask this one for samples at %s: %w: see --peer.advertise-address, "+
				"--peer.web.config.file and --peer.http.config.file", p.url, err)
		}
	}
	p.logger.Warn("this promtsd does not reach itself where others are to: see --peer.advertise-address", "url", p.url,
		"err", err)
	return nil
}

// misconfigured says whether a promtsd that could not ask itself is set up so: its certificates do not fit, or it is
// refused.
func misconfigured(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if said, ok := errors.AsType[*net.OpError](err); ok {
		return said.Op == "remote error" // a TLS alert
	}
	status, ok := errors.AsType[*peer.StatusError](err)
	return ok && status.Code < http.StatusInternalServerError
}

// close ends serve.
func (p *peerServer) close() error {
	if p.served == nil {
		return p.listener.Close()
	}
	last, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if p.server.Shutdown(last) != nil {
		_ = p.server.Close()
	}
	if end := <-p.served; !errors.Is(end, http.ErrServerClosed) {
		return fmt.Errorf("serve other promtsd: %w", end)
	}
	return nil
}

// group is what all promtsd hold: this process, as whom writer says, and all others that have a lease.
func (p *peerServer) group(
	local query.Buffer, writer func() journal.ID, leases func(context.Context) ([]journal.Lease, error),
) *peer.Group {
	return &peer.Group{
		Local: local, Client: p.client, Timeout: peerTimeout, MaxBytes: peerMaxBytes,
		Peers: func(ctx context.Context) ([]peer.Peer, error) {
			found, err := leases(ctx)
			var others []peer.Peer
			for _, l := range found {
				if l.Writer != writer() {
					others = append(others, p.peer(l))
				}
			}
			return others, err
		},
	}
}

// peer is the writer of a lease.
func (p *peerServer) peer(l journal.Lease) peer.Peer {
	found := peer.Peer{Name: l.Writer.String(), Writer: l.Writer.String()}
	u, err := parsePeerURL(l.Address)
	switch {
	case l.Holder != l.Writer:
		found.Note = "it is dead, and its journal is being taken over"
	case err != nil:
		found.Note = err.Error()
	case u.Scheme == "http" && strings.HasPrefix(p.url, "https:"):
		found.Note = fmt.Sprintf("it is at %s, which has no TLS", u)
	default:
		found.Name += " at " + u.Host
		found.URL = u.String()
	}
	return found
}

// parsePeerURL reads an address in a lease. The error does not show it: there may be secrets in it.
func parsePeerURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err == nil {
		port, bad := strconv.Atoi(u.Port())
		plain := url.URL{Scheme: u.Scheme, Host: u.Host}
		if bad == nil && 0 < port && port < 1<<16 && u.Hostname() != "" && (u.Scheme == "http" || u.Scheme == "https") &&
			plain.String() == text {
			return u, nil
		}
	}
	return nil, errors.New("the address in its lease is not http://HOST:PORT or https://HOST:PORT")
}
