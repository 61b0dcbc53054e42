package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// An answer is what the work comes to.
type answer struct {
	status int
	body   []byte
}

var (
	noContent = answer{status: http.StatusNoContent}
	created4K = answer{status: http.StatusCreated, body: bytes.Repeat([]byte("0123456789abcdef"), 4<<10/16)}
)

func (a answer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(a.status)
	if len(a.body) > 0 {
		_, _ = w.Write(a.body)
	}
}

// An endpoint does the work once for each key.
type endpoint struct {
	first  http.Handler // meets the request that does the work
	replay http.Handler // meets a later one with the same key
}

// An httpImpl makes an endpoint of the work, which comes to a.
type httpImpl struct {
	name   string
	around func(b *testing.B, rdb *redis.Client, work http.Handler, a answer) endpoint
}

var httpImpls = []httpImpl{{"raw", byHand}, {"onerun", guardedHTTP}}

// setRecord puts a record in the place of the caller's claim.
var setRecord = redis.NewScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) else return false end`)

// byHand is the limit: two bare round trips around the work, one for a replay. It looks at the key
// and at nothing else of a request, and knows the answer beforehand.
func byHand(b *testing.B, rdb *redis.Client, work http.Handler, a answer) endpoint {
	const token, kept = "token", 24 * time.Hour
	first := func(w http.ResponseWriter, r *http.Request) {
		ctx, key := r.Context(), r.Header.Get("Idempotency-Key")
		if ok, err := rdb.SetNX(ctx, key, token, ttl).Result(); err != nil || !ok {
			http.Error(w, fmt.Sprint("claimed: ", ok, err), http.StatusConflict)
			return
		}
		work.ServeHTTP(w, r)
		if err := setRecord.Run(ctx, rdb, []string{key}, token, a.body, kept.Milliseconds()).Err(); err != nil {
			b.Error(err)
		}
	}
	replay := func(w http.ResponseWriter, r *http.Request) {
		record, err := rdb.Get(r.Context(), r.Header.Get("Idempotency-Key")).Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		answer{a.status, record}.ServeHTTP(w, r)
	}
	return endpoint{http.HandlerFunc(first), http.HandlerFunc(replay)}
}

// A page is the ResponseWriter of one caller. It keeps what is checked.
type page struct {
	header http.Header
	status int
	body   []byte
}

func (p *page) Header() http.Header { return p.header }

func (p *page) WriteHeader(status int) {
	if p.status == 0 {
		p.status = status
	}
}

func (p *page) Write(b []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	p.body = append(p.body, b...)
	return len(b), nil
}

const order = `{"item":"book","quantity":1,"price":{"amount":1999,"currency":"EUR"}}`

var orders = httptest.NewRequest(http.MethodPost, "/orders", nil)

// ask sends an order under the key. As in net/http, the request has a context and the answer a
// header of its own.
func (p *page) ask(h http.Handler, key string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := orders.WithContext(ctx)
	r.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader(order)), int64(len(order))
	*p = page{header: http.Header{}, body: p.body[:0]}
	h.ServeHTTP(p, r)
	p.WriteHeader(http.StatusOK)
}

// send sends n orders by so many callers. It ends the benchmark if an answer is not the one that
// was expected.
func send(b *testing.B, callers, n int, h http.Handler, a answer, key func(n int) string) {
	b.Helper()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			var p page
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				p.ask(h, key(i))
				if p.status != a.status || !bytes.Equal(p.body, a.body) {
					b.Errorf("%s was answered with %d and %d bytes: %.200q", key(i), p.status, len(p.body), p.body)
					return
				}
			}
		})
	}
	all.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// A workload sends orders for the benchmark and returns how often work was to be done for them.
// The key's order has been worked on before.
type workload func(b *testing.B, callers int, e endpoint, a answer, key func(n int) string) (work int)

// benchHTTP has one server for all. The handlers are called as they are: nothing but Redis is at
// the other end of a connection.
func benchHTTP(b *testing.B, a answer, load workload) {
	server := redistest.Start(b)
	for _, callers := range []int{1, 64} {
		for _, impl := range httpImpls {
			b.Run(fmt.Sprintf("impl=%s/g=%d", impl.name, callers), func(b *testing.B) {
				rdb := server.Client(b)
				makeCounters(b, rdb)
				// the records would stay for a day
				b.Cleanup(func() { require.NoError(b, rdb.FlushAll(context.Background()).Err()) })
				var done atomic.Int64
				e := impl.around(b, rdb, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					done.Add(1)
					a.ServeHTTP(w, r)
				}), a)
				key := keys()
				send(b, 1, 1, e.first, a, key)
				send(b, 1, 1, e.replay, a, key)
				require.EqualValues(b, 1, done.Load(), "how often the work was done for an order that came twice")
				b.ReportAllocs()
				work := load(b, callers, e, a, key)
				b.StopTimer()
				require.EqualValues(b, 1+work, done.Load(), "how often the work was done")
			})
		}
	}
}

// firsts sends orders with keys of their own.
func firsts(b *testing.B, callers int, e endpoint, a answer, _ func(n int) string) (work int) {
	send(b, callers, callers, e.first, a, keys()) // warm: connections and scripts
	b.ResetTimer()
	send(b, callers, b.N, e.first, a, keys())
	return callers + b.N
}

// replays sends the same order again and again.
func replays(b *testing.B, callers int, e endpoint, a answer, key func(n int) string) (work int) {
	same := func(int) string { return key(1) }
	send(b, callers, callers, e.replay, a, same)
	b.ResetTimer()
	send(b, callers, b.N, e.replay, a, same)
	return 0
}

// BenchmarkHTTPEmpty is the first answer to an order, without a body.
func BenchmarkHTTPEmpty(b *testing.B) { benchHTTP(b, noContent, firsts) }

// BenchmarkHTTPRecord4K is the first answer to an order, of 4 KiB.
func BenchmarkHTTPRecord4K(b *testing.B) { benchHTTP(b, created4K, firsts) }

// BenchmarkHTTPReplay is a later answer to an order, of 4 KiB.
func BenchmarkHTTPReplay(b *testing.B) { benchHTTP(b, created4K, replays) }
