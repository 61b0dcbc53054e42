// Package certs makes certificates for tests, of an authority of their own.
package certs

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
)

const (
	// User is the common name of the certificates. It makes a client that user of etcd.
	User     = "root"
	loopback = "127.0.0.1"
)

// Certs are an authority, and what a server and a client at the loopback address have from it.
type Certs struct {
	// CA, Cert and Key are files in PEM.
	CA, Cert, Key string
	// Config is for a client.
	Config *tls.Config
}

// Make makes an authority and a certificate. The files last as long as the test.
func Make(t testing.TB) *Certs {
	t.Helper()
	dir, authority := t.TempDir(), newAuthority(t)
	c := &Certs{CA: filepath.Join(dir, "ca.pem"), Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	writePEM(t, c.CA, "CERTIFICATE", authority.cert.Raw)
	own := authority.issue(t)
	writePEM(t, c.Cert, "CERTIFICATE", own.Certificate[0])
	private, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, c.Key, "PRIVATE KEY", private)
	pool := x509.NewCertPool()
	pool.AddCert(authority.cert)
	c.Config = &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	return c
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
	template.SerialNumber, template.Subject = big.NewInt(2), pkix.Name{CommonName: User}
	template.IPAddresses = []net.IP{net.ParseIP(loopback)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	cert := sign(t, template, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func newTemplate() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "certs"},
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
