package promtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// WebFiles are configurations of listeners, and of clients for them.
type WebFiles struct{ dir string }

// Path is the file of a configuration by its name: tls, mutual, users and both are of listeners, the others of clients.
func (f WebFiles) Path(name string) string { return filepath.Join(f.dir, name+".yml") }

// NewWebFiles makes a certificate for 127.0.0.1, of server and client, and configurations with it and with a password.
func NewWebFiles(t *testing.T) WebFiles {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "promtsd"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	const (
		tls      = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
		mutual   = "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequireAndVerifyClientCert, client_ca_file: cert.pem}\n"
		users    = "basic_auth_users: {peer: $2a$04$46HczdOk98.Yk/pXjguBEedEpVBMvAGxLkDnsoODv.XXI4rTXXyO6}\n" // "secret"
		trust    = "tls_config: {ca_file: cert.pem}\n"
		show     = "tls_config: {ca_file: cert.pem, cert_file: cert.pem, key_file: key.pem}\n"
		password = "basic_auth: {username: peer, password: secret}\n"
	)
	f := WebFiles{t.TempDir()}
	for name, content := range map[string]string{
		"cert.pem": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		"key.pem":  string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})),
		"tls.yml":  tls, "mutual.yml": mutual, "users.yml": users, "both.yml": tls + users,
		"trust.yml": trust, "show.yml": show, "password.yml": password, "all.yml": show + password,
		"wrong.yml": trust + "basic_auth: {username: peer, password: guess}\n", "bad.yml": "basic_auth: [",
	} {
		if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
