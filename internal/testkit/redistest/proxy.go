package redistest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy forwards messages between clients and one server, subject to the faults that are set. It
// reads requests and replies one by one, so a fault affects one command even in a pipeline.
// Messages that the fault does not affect keep their order. All methods may be called from any
// goroutine.
//
// One Proxy is one network path. The faults are in force at the moment of delivery, for old
// and for new connections, until Restore.
type Proxy struct {
	t        testing.TB
	target   string
	listener *net.TCPListener
	gate     *gate
	stopped  chan struct{}
	wg       sync.WaitGroup // the acceptor and all links

	mu       sync.Mutex
	accepted int
	links    map[*link]struct{}
}

// StartProxy listens on a free port of the loopback and passes connections on to the target
// ("host:port"). When the test ends it resets its connections and waits for its goroutines. A
// client that connects while the target refuses is accepted, and then reset.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(loopback)})
	if err != nil {
		t.Fatalf("redistest: start a proxy for %s: %v", target, err)
	}
	p := &Proxy{
		t: t, target: target, listener: listener, gate: newGate(),
		stopped: make(chan struct{}), links: map[*link]struct{}{},
	}
	t.Cleanup(p.stop)
	p.wg.Go(p.accept)
	return p
}

// Addr is the host and port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Client returns a client like that of [Server.Client], through the proxy.
func (p *Proxy) Client(t testing.TB, configure ...func(*redis.Options)) *redis.Client {
	t.Helper()
	return newClient(t, p.Addr(), configure)
}

// Conns is the number of connections accepted so far.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Cut resets all present connections, on both sides. New ones are accepted.
func (p *Proxy) Cut() {
	for _, l := range p.current() {
		l.reset()
	}
}

func (p *Proxy) current() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	return links
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if err != nil {
			return // closed by stop
		}
		p.mu.Lock()
		p.accepted++
		p.mu.Unlock()
		p.wg.Go(func() { p.serve(client) })
	}
}

// serve owns one connection until both of its sides are closed.
func (p *Proxy) serve(client *net.TCPConn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		p.gate.pass(replies, message{push: true}, p.stopped) // no reset is seen in the dark
		reset(client)
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	if !p.add(l) {
		l.reset()
		return
	}
	l.run()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// add refuses a link when the proxy has stopped, for nobody would end it.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.stopped:
		return false
	default:
		p.links[l] = struct{}{}
		return true
	}
}

func (p *Proxy) stop() {
	p.mu.Lock()
	close(p.stopped)
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.wg.Wait()
}
