package redistest

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// message is one request or one reply, byte for byte.
type message struct {
	raw  []byte
	name string // of the command; for a push its kind
	push bool   // answers no request
	came time.Time
}

// queued is how many messages a direction holds before it stops reading, as a network would.
const queued = 1024

// link is one connection through the proxy. Each direction has a goroutine that reads and one
// that delivers, so that a delayed message does not delay the reading of the next.
type link struct {
	proxy          *Proxy
	client, server *net.TCPConn
	closed         chan struct{}
	once           sync.Once

	mu         sync.Mutex
	awaited    []string // the commands whose replies are still to come
	subscribed bool
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	return &link{proxy: p, client: client, server: server, closed: make(chan struct{})}
}

// run returns when the four goroutines have ended.
func (l *link) run() {
	defer l.close()
	ways := [2]chan message{make(chan message, queued), make(chan message, queued)}
	var wg sync.WaitGroup
	wg.Go(func() { l.read(l.client, readRequest, l.request, ways[requests]) })
	wg.Go(func() { l.read(l.server, readValue, l.reply, ways[replies]) })
	wg.Go(func() { l.deliverRequests(ways[requests]) })
	wg.Go(func() { l.deliverReplies(ways[replies]) })
	wg.Wait()
}

// read cuts what a side sends into messages until it sends no more.
func (l *link) read(side io.Reader, next func(*bufio.Reader) ([]byte, error), name func([]byte) message, out chan<- message) {
	defer close(out)
	reader := bufio.NewReader(side)
	for {
		raw, err := next(reader)
		if err != nil {
			l.explain(err)
			return
		}
		select {
		case out <- name(raw):
		case <-l.closed:
			return
		}
	}
}

// explain logs what is not the plain end of a connection.
func (l *link) explain(err error) {
	var network *net.OpError
	if !errors.Is(err, io.EOF) && !errors.As(err, &network) {
		l.proxy.t.Logf("redistest: proxy %s: a connection ended: %v", l.proxy.Addr(), err)
	}
}

// deliverRequests ends with a half-close: what the client sent before it left still runs.
func (l *link) deliverRequests(in <-chan message) {
	for m := range in {
		if l.proxy.gate.pass(requests, m, l.closed) != deliver {
			return
		}
		l.expect(m.name)
		if _, err := l.server.Write(m.raw); err != nil {
			return // the reader of that side sees the end too, and tells the client in due time
		}
	}
	if l.proxy.gate.pass(requests, message{push: true}, l.closed) == deliver {
		_ = l.server.CloseWrite() // fails only if the server is gone, which its reader sees
	}
}

func (l *link) deliverReplies(in <-chan message) {
	for m := range in {
		switch l.proxy.gate.pass(replies, m, l.closed) {
		case deliver:
			if _, err := l.client.Write(m.raw); err != nil {
				forget(in)
			}
		case swallow:
		case cut:
			l.reset()
			return
		case closed:
			return
		}
	}
	if l.proxy.gate.pass(replies, message{push: true}, l.closed) == deliver {
		l.close()
	}
}

// forget reads on for a client that has left, whose delayed requests may still have to arrive.
func forget(in <-chan message) {
	for range in {
	}
}

// close ends both sides in good order. Only the first close or reset counts.
func (l *link) close() {
	l.once.Do(func() {
		close(l.closed)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

// reset ends both sides with RST.
func (l *link) reset() {
	l.once.Do(func() {
		close(l.closed)
		reset(l.client)
		reset(l.server)
	})
}

func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0) // fails only on a closed connection, as Close does
	_ = conn.Close()
}
