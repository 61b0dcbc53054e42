package slow_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A link leads to all servers of a test by Paths. Its clients have the options that drivers have by
// default, so a new connection takes all the round trips that it takes for a user.
type link struct {
	t     testing.TB
	mu    sync.Mutex
	delay time.Duration
	paths map[string]*redistest.Path // by the server's address
}

func newLink(t testing.TB) *link { return &link{t: t, paths: map[string]*redistest.Path{}} }

func (l *link) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	l.mu.Lock()
	p := l.paths[addr]
	if p == nil {
		p = redistest.StartPath(l.t, addr)
		p.Delay(l.delay)
		l.paths[addr] = p
	}
	l.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, "tcp", p.Addr())
}

// setDelay sets how long a round trip takes from now on.
func (l *link) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
	for _, p := range l.paths {
		p.Delay(d)
	}
}
