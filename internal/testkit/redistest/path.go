package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A Path forwards bytes between its own address and a server, until it is closed. A Proxy
// understands what it forwards, so it cannot be between a master and its replica.
type Path struct {
	listener net.Listener
	target   string
	all      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// startPath returns a Path to the address. It is closed when the test ends.
func startPath(t testing.TB, target string) *Path {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		t.Fatalf("redistest: start a path: %v", err)
	}
	p := &Path{listener: listener, target: target}
	p.all.Go(p.accept)
	t.Cleanup(func() { p.Close(); p.all.Wait() })
	return p
}

// Addr returns the address at which the Path listens.
func (p *Path) Addr() string { return p.listener.Addr().String() }

// Close ends all connections. The address refuses new ones.
func (p *Path) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = p.listener.Close()
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Path) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		if p.closed {
			_, _ = client.Close(), server.Close()
		}
		p.mu.Unlock()
		p.all.Go(func() { forward(client, server) })
		p.all.Go(func() { forward(server, client) })
	}
}

func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = to.Close(), from.Close()
}
