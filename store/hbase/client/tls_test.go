package client_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/promtsd/promtsd/store/hbase/client"
	"github.com/promtsd/promtsd/store/hbase/hbasetest"
	"github.com/promtsd/promtsd/store/hbase/wire"
)

// A cluster that speaks nothing but TLS, and only to those who have a certificate that it trusts.
func TestClient_OverTLS(t *testing.T) {
	certificate, pool, site := identity(t)
	cluster := hbasetest.Standalone(t, hbasetest.Config{Site: site})
	if strings.HasPrefix(cluster.Version(), "2.5.") {
		t.Skip("HBase serves TLS from 2.6 on")
	}
	known := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{certificate}}
	for name, cfg := range map[string]client.Config{
		"located by ZooKeeper": {ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode()},
		"located by a master":  {Masters: []string{cluster.Master().Addr()}},
		"compressed":           {ZooKeeper: []string{cluster.ZK()}, ZNode: cluster.ZNode(), Compression: wire.Snappy},
	} {
		t.Run(name, func(t *testing.T) {
			cfg.TLS = known
			c := connect(t, cfg)
			name := table(t, c, "000050")
			put(t, c, name, 0, 5000)
			assertRows(t, scan(t, c, client.Scan{Table: name}), wantRows(0, 5000))
			n, err := c.Increment(t.Context(), client.Coord{Table: name, Row: []byte("n"), Family: "f"}, 3)
			if n != 3 || err != nil {
				t.Errorf("increment: got %d and error %v, want 3", n, err)
			}
		})
	}
	for name, config := range map[string]*tls.Config{
		"plain client":               nil,
		"client without certificate": {RootCAs: pool},
		"client that does not trust": {Certificates: []tls.Certificate{certificate}},
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, client.Config{
				Masters: []string{cluster.Master().Addr()}, TLS: config, OperationTimeout: 2 * time.Second,
			})
			tables, err := c.Tables(t.Context())
			if !errors.Is(err, client.ErrUnavailable) && !errors.Is(err, client.ErrRejected) {
				t.Errorf("got tables %q and error %v, want it to fail", tables, err)
			}
		})
	}
}

func connect(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// identity makes a certificate for this machine, the pool that trusts it, and the properties that have HBase use both
// for all its connections.
func identity(t *testing.T) (tls.Certificate, *x509.CertPool, map[string]string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, // Java wants one
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	own := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), trusted...)
	dir := t.TempDir()
	site := map[string]string{
		"hbase.server.netty.tls.enabled": "true", "hbase.server.netty.tls.supportplaintext": "false",
		"hbase.client.netty.tls.enabled": "true",
	}
	for store, content := range map[string][]byte{"keystore": own, "truststore": trusted} {
		file := filepath.Join(dir, store+".pem")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		site["hbase.rpc.tls."+store+".location"] = file
	}
	certificate, err := tls.X509KeyPair(own, own)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	return certificate, pool, site
}
