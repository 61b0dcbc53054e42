package redistest

import (
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Path forwards bytes between its own address and a server of any kind, until it is closed. A
// Proxy understands what it forwards, so it cannot be between a master and its replica. A Path can
// be: it only delays, as a long way does, what makes a connection too.
type Path struct {
	listener net.Listener
	target   string
	delay    atomic.Int64
	all      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

// StartPath returns a Path to the address, or to the Unix socket of that absolute path. It is
// closed when the test ends.
func StartPath(t testing.TB, target string) *Path {
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

// Delay is how long a round trip takes from now on, beside what the server needs: each answer comes
// that much later. A new connection takes one round trip before anything is sent on it.
func (p *Path) Delay(roundTrip time.Duration) { p.delay.Store(int64(roundTrip)) }

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
		network := "tcp"
		if strings.HasPrefix(p.target, "/") {
			network = "unix"
		}
		server, err := net.Dial(network, p.target)
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
		p.all.Go(func() {
			time.Sleep(time.Duration(p.delay.Load()))
			p.forward(server, client, func() time.Duration { return 0 })
		})
		p.all.Go(func() {
			p.forward(client, server, func() time.Duration { return time.Duration(p.delay.Load()) })
		})
	}
}

// forward passes on what comes, each part when its delay has passed.
func (p *Path) forward(to, from net.Conn, delay func() time.Duration) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, queued)
	p.all.Go(func() {
		for part := range parts {
			time.Sleep(time.Until(part.due))
			_, _ = to.Write(part.bytes)
		}
		_, _ = to.Close(), from.Close()
	})
	defer close(parts)
	for {
		buffer := make([]byte, 32*1024)
		n, err := from.Read(buffer)
		if n > 0 {
			parts <- part{buffer[:n], time.Now().Add(delay())}
		}
		if err != nil {
			return
		}
	}
}
