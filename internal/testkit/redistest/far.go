package redistest

import (
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/lagtest"
)

// A directory has servers that know each other by addresses with a lag.
type directory struct {
	mu     sync.Mutex
	direct map[string]string // by the address with the lag
}

func newDirectory() *directory { return &directory{direct: map[string]string{}} }

// far returns another port of a server: what goes there, and comes from there, has a lag.
func (d *directory) far(t testing.TB, of *port, lag time.Duration) string {
	line := lagtest.Start(t, "tcp", net.JoinHostPort(loopback, "0"), of.addr(), lag)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.direct[line.Addr()] = of.addr()
	return line.Port()
}

// announced returns the address with the lag of a server, or its own if it has none.
func (d *directory) announced(server *Server) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for far, direct := range d.direct {
		if direct == server.Addr() {
			return far
		}
	}
	return server.Addr()
}

func (d *directory) all() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.direct)
}
