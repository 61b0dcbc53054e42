package redistest

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/internal/testkit/certs"
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
	c := certs.Make(t)
	return &TLSServer{
		Server: Start(t, append([]string{
			"--tls-port", held.String(), "--tls-auth-clients", "yes",
			"--tls-ca-cert-file", c.CA, "--tls-cert-file", c.Cert, "--tls-key-file", c.Key,
		}, args...)...),
		TLSAddr: held.addr(),
		Config:  c.Config,
	}
}

// Client returns a client like that of [Server.Client], by TLS.
func (s *TLSServer) Client(t testing.TB, configure ...func(*redis.Options)) *redis.Client {
	t.Helper()
	byTLS := func(o *redis.Options) { o.Addr, o.TLSConfig = s.TLSAddr, s.Config.Clone() }
	return s.Server.Client(t, append([]func(*redis.Options){byTLS}, configure...)...)
}
