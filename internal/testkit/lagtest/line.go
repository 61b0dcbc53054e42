// Package lagtest puts a distance between servers of one machine. Without it, a replica receives
// what a killed server has written: the kernel delivers it.
package lagtest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Line forwards bytes to a server after a lag, both ways. When either end of a connection ends,
// what is under way is lost, as when a machine dies.
type Line struct {
	listener net.Listener
	network  string
	target   string
	lag      time.Duration
	all      sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// Start returns a Line to a server at the network and address target. It listens at addr until the
// test ends.
func Start(t testing.TB, network, addr, target string, lag time.Duration) *Line {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatalf("lagtest: %v", err)
	}
	l := &Line{listener: listener, network: network, target: target, lag: lag, conns: map[net.Conn]bool{}}
	l.all.Go(l.accept)
	t.Cleanup(l.close)
	return l
}

// Addr returns the address at which the Line listens.
func (l *Line) Addr() string { return l.listener.Addr().String() }

// Port returns the port of that address.
func (l *Line) Port() string {
	_, port, _ := net.SplitHostPort(l.Addr()) // an address of a listener has one
	return port
}

func (l *Line) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	l.closed = true
	for conn := range l.conns {
		_ = conn.Close()
	}
	l.mu.Unlock()
	l.all.Wait()
}

func (l *Line) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.connect(client) })
	}
}

// connect forwards until one of the two has ended.
func (l *Line) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial(l.network, l.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !l.keep(client, server) {
		return
	}
	defer l.forget(client, server)
	ended := make(chan struct{})
	end := sync.OnceFunc(func() {
		close(ended)
		_, _ = client.Close(), server.Close()
	})
	var both sync.WaitGroup
	both.Go(func() { l.forward(server, client, ended, end) })
	both.Go(func() { l.forward(client, server, ended, end) })
	both.Wait()
}

func (l *Line) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		l.conns[conn] = true
	}
	return !l.closed
}

func (l *Line) forget(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		delete(l.conns, conn)
	}
}

// A chunk is bytes that are under way.
type chunk struct {
	bytes []byte
	due   time.Time
}

// forward returns when the connection has ended, and ends it.
func (l *Line) forward(to, from net.Conn, ended <-chan struct{}, end func()) {
	defer end()
	underWay := make(chan chunk, 1024)
	var delivering sync.WaitGroup
	defer delivering.Wait()
	defer close(underWay)
	delivering.Go(func() {
		for c := range underWay {
			select {
			case <-ended:
				return
			case <-time.After(time.Until(c.due)):
			}
			select {
			case <-ended: // both may be
				return
			default:
			}
			if _, err := to.Write(c.bytes); err != nil {
				end()
				return
			}
		}
	})
	for {
		buffer := make([]byte, 32<<10)
		n, err := from.Read(buffer)
		if err != nil {
			end()
			return
		}
		select {
		case underWay <- chunk{buffer[:n], time.Now().Add(l.lag)}:
		case <-ended:
			return
		}
	}
}
