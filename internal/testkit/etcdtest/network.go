package etcdtest

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"
)

// redial is after what time a server that is cut off sees that a connection fails.
const redial = 100 * time.Millisecond

// A network connects the servers of a cluster. Each server sends by a proxy of its own, so that the
// network knows both ends of each connection. Names that end with ".test" are those of servers:
// the servers would use no proxy for a loopback address.
type network struct {
	address map[string]string // by names

	mu     sync.Mutex
	joined map[string]context.Context // end when a server is cut off
	cut    map[string]context.CancelFunc
}

func newNetwork() *network {
	return &network{address: map[string]string{}, joined: map[string]context.Context{}, cut: map[string]context.CancelFunc{}}
}

// add adds a server, and returns its URL for others, and the URL of its proxy.
func (n *network) add(t testing.TB, name, port string) (public, proxy string) {
	host := name + ".test:" + port
	n.address[host] = "127.0.0.1:" + port
	n.join(host)
	transport := &http.Transport{}
	forward := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: n.address[r.In.URL.Host]}) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := n.between(r.Context(), host, r.URL.Host)
		defer cancel()
		if ctx.Err() != nil {
			time.Sleep(redial)
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r.WithContext(ctx))
	}))
	server.Config.ErrorLog = forward.ErrorLog
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return "http://" + host, server.URL
}

// between returns a context that ends when one of two servers is cut off.
func (n *network) between(ctx context.Context, from, to string) (context.Context, func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	if n.joined[to] == nil || n.joined[from].Err() != nil || n.joined[to].Err() != nil {
		cancel()
		return ctx, cancel
	}
	first, second := context.AfterFunc(n.joined[from], cancel), context.AfterFunc(n.joined[to], cancel)
	return ctx, func() {
		first()
		second()
		cancel()
	}
}

func (n *network) join(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.joined[host], n.cut[host] = context.WithCancel(context.Background())
}

func (n *network) isolate(host string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[host]()
}
