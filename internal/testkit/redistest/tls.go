package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A TLSServer is a Server that also listens for TLS, on a port of its own. There it accepts only
// clients that have a certificate of its authority.
type TLSServer struct {
	*Server
	// TLSAddr is the host and port of the TLS listener.
	TLSAddr string
	// Config has the authority, and a certificate for the client.
	Config *tls.Config
}

// StartTLS is Start for a server that listens for TLS, too.
func StartTLS(t testing.TB, args ...string) *TLSServer {
	t.Helper()
	Require(t)
	held, err := holdPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.release)
	dir, authority := t.TempDir(), newAuthority(t)
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, ca, "CERTIFICATE", authority.cert.Raw)
	own := authority.issue(t)
	writePEM(t, cert, "CERTIFICATE", own.Certificate[0])
	private, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, "PRIVATE KEY", private)
	pool := x509.NewCertPool()
	pool.AddCert(authority.cert)
	return &TLSServer{
		Server: Start(t, append([]string{
			"--tls-port", held.String(), "--tls-auth-clients", "yes",
			"--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file", key,
		}, args...)...),
		TLSAddr: held.addr(),
		Config: &tls.Config{
			RootCAs: pool, Certificates: []tls.Certificate{authority.issue(t)}, MinVersion: tls.VersionTLS12,
		},
	}
}

// Client returns a client like that of [Server.Client], by TLS.
func (s *TLSServer) Client(t testing.TB, configure ...func(*redis.Options)) *redis.Client {
	t.Helper()
	byTLS := func(o *redis.Options) { o.Addr, o.TLSConfig = s.TLSAddr, s.Config.Clone() }
	return s.Server.Client(t, append([]func(*redis.Options){byTLS}, configure...)...)
}

// An authority issues certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	template := newTemplate()
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	a.cert = sign(t, template, template, &a.key.PublicKey, a.key)
	return a
}

// issue returns a certificate for servers and clients at the loopback.
func (a *authority) issue(t testing.TB) tls.Certificate {
	t.Helper()
	key, template := newKey(t), newTemplate()
	template.SerialNumber, template.Subject = big.NewInt(2), pkix.Name{CommonName: loopback}
	template.IPAddresses = []net.IP{net.ParseIP(loopback)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert := sign(t, template, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func newTemplate() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(
	t testing.TB, template, parent *x509.Certificate, public *ecdsa.PublicKey, private *ecdsa.PrivateKey,
) *x509.Certificate {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func writePEM(t testing.TB, file, kind string, raw []byte) {
	t.Helper()
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
