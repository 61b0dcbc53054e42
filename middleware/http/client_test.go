package guardhttp_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

const (
	// lifeTTL is that of leases which have to survive, also on a loaded machine: a machine that
	// holds this process up for as long ends them. It gives a request to the store 5 s, too.
	lifeTTL = 20 * time.Second
	// lifeSoon is how long what should happen soon may take on a loaded machine.
	lifeSoon = 15 * time.Second
	// lifePoll is how often a test looks whether it has happened.
	lifePoll = 5 * time.Millisecond
)

// lifeGuard returns a Guard over the store, closed with the test.
func lifeGuard(t *testing.T, store guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(store, append([]guard.Option{guard.WithNamespace("test"), guard.WithTTL(lifeTTL)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), lifeSoon)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}

// lifeIdempotent returns the handler behind a middleware over g, and the log of its outcomes.
func lifeIdempotent(t *testing.T, g *guard.Guard, h http.HandlerFunc, opts ...guardhttp.Option) (http.Handler, *outcomeLog) {
	t.Helper()
	seen := new(outcomeLog)
	opts = append([]guardhttp.Option{guardhttp.WithScope(tenant), idempotency.WithObserver(seen.observer())}, opts...)
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, opts...)
	require.NoError(t, err)
	return idempotent(h), seen
}

// A lifeServer is an HTTP server and a client of it.
type lifeServer struct {
	URL    string
	client *http.Client
	log    *outcomeLog // the outcomes of its requests, if it is lifeServe's
}

// lifeServe serves h behind a middleware over g.
func lifeServe(t *testing.T, g *guard.Guard, h http.HandlerFunc, opts ...guardhttp.Option) *lifeServer {
	t.Helper()
	idempotent, seen := lifeIdempotent(t, g, h, opts...)
	s := lifeListen(t, idempotent)
	s.log = seen
	return s
}

// lifeListen serves h. Handlers must not go on for long after t.Context() has ended.
func lifeListen(t *testing.T, h http.Handler) *lifeServer {
	t.Helper()
	return lifeListenTo(t, h, false)
}

func lifeListenTo(t *testing.T, h http.Handler, http2 bool) *lifeServer {
	t.Helper()
	address, client := contentServer(t, h, http2, io.Discard)
	return &lifeServer{URL: address, client: client}
}

// lifeClient returns a client with connections of its own.
func lifeClient(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// lifeSend sends a POST with the key and the body, and headers as pairs of name and value.
func lifeSend(ctx context.Context, c *http.Client, url, key, body string, headers ...string) (a httpAnswer) {
	ctx, cancel := context.WithTimeout(ctx, 2*lifeSoon) // so that a test ends which waits in vain
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return httpAnswer{err: err}
	}
	r.GetBody = nil // net/http would send a request with this header again on its own
	r.Header.Set("X-Tenant", "acme")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	a, err = do(c, r)
	a.err = cmp.Or(err, a.err)
	return a
}

// post sends a request and returns the answer to it.
func (s *lifeServer) post(t *testing.T, key, body string, headers ...string) httpAnswer {
	t.Helper()
	a := lifeSend(t.Context(), s.client, s.URL, key, body, headers...)
	require.NoError(t, a.err)
	return a
}

// start sends a request in the background. The channel has room for the answer.
func (s *lifeServer) start(ctx context.Context, key, body string, headers ...string) <-chan httpAnswer {
	answers := make(chan httpAnswer, 1)
	go func() { answers <- lifeSend(ctx, s.client, s.URL, key, body, headers...) }()
	return answers
}

// requireProblem checks that the answer is the middleware's own, for that reason, and returns its
// Retry-After in seconds, 0 if there is none.
func requireProblem(t *testing.T, a httpAnswer, status int, code idempotency.Result) int {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, status, a.status, a.body)
	require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
	require.False(t, a.replayed())
	var p guardhttp.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(t, code, p.Code)
	require.Equal(t, status, p.Status)
	after := a.header.Get("Retry-After")
	if after == "" {
		return 0
	}
	seconds, err := strconv.Atoi(after)
	require.NoError(t, err, "Retry-After has whole seconds")
	require.Positive(t, seconds)
	return seconds
}

// requireRan checks that the answer is a handler's, at first hand.
func requireRan(t *testing.T, a httpAnswer, status int, body string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, status, a.status, a.body)
	requireSameText(t, body, a.body)
	require.False(t, a.replayed())
}

// requireReplay checks that the answer is a handler's, at second hand.
func requireReplay(t *testing.T, a httpAnswer, status int, body string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, status, a.status, a.body)
	requireSameText(t, body, a.body)
	require.True(t, a.replayed())
}

// requireSameText is require.Equal for texts that are too long to print.
func requireSameText(t *testing.T, want, got string) {
	t.Helper()
	if want != got {
		require.FailNow(t, "not the same text", "%d bytes, and not %d: %.80q, and not %.80q", len(got), len(want), got, want)
	}
}

// An outcomeLog keeps Outcomes.
type outcomeLog struct {
	mu  sync.Mutex
	all []idempotency.Outcome
}

func (l *outcomeLog) observer() func(context.Context, idempotency.Outcome) {
	return func(_ context.Context, o idempotency.Outcome) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, o)
	}
}

func (l *outcomeLog) seen() []idempotency.Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]idempotency.Outcome(nil), l.all...)
}

// await returns the first n Outcomes when they are there. A client may have its answer before.
func (l *outcomeLog) await(t *testing.T, n int) []idempotency.Outcome {
	t.Helper()
	require.Eventually(t, func() bool { return len(l.seen()) >= n }, lifeSoon, lifePoll, "%d outcomes", n)
	return l.seen()[:n]
}

// awaitResult returns the n-th Outcome with the Result when it is there.
func (l *outcomeLog) awaitResult(t *testing.T, result idempotency.Result, n int) (found idempotency.Outcome) {
	t.Helper()
	require.Eventually(t, func() bool {
		seen := 0
		for _, o := range l.seen() {
			if o.Result == result {
				if seen++; seen == n {
					found = o
					return true
				}
			}
		}
		return false
	}, lifeSoon, lifePoll, "outcome %d with the result %s", n, result)
	return found
}

// lifePrompt fails the test if f takes d or longer, not counting for how long the machine held this
// process up. It gives f ten tries, as the machine may hold up a server, too. f returns when what
// has to be prompt began.
func lifePrompt(t *testing.T, d time.Duration, what string, f func() (start time.Time)) {
	t.Helper()
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	fastest := time.Hour
	for range 10 {
		start := f()
		took := time.Since(start)
		if took -= stalls.Since(start); took < d {
			return
		}
		fastest = min(fastest, took)
	}
	require.FailNow(t, what+" takes too long", "%v at least, without what the machine held us up for: it should take less than %v", fastest, d)
}

// A lifeGate holds up handlers in mid-run.
type lifeGate struct {
	begun chan context.Context
	way   chan struct{}
	over  <-chan struct{}
	once  sync.Once
}

func newLifeGate(t *testing.T) *lifeGate {
	return &lifeGate{begun: make(chan context.Context, 100), way: make(chan struct{}), over: t.Context().Done()}
}

// pass says that a handler with the context has begun, and returns when the gate is open or the
// test over.
func (g *lifeGate) pass(ctx context.Context) {
	g.begun <- ctx
	select {
	case <-g.way:
	case <-g.over:
	}
}

func (g *lifeGate) open() { g.once.Do(func() { close(g.way) }) }

// await returns when a handler has begun, with its context.
func (g *lifeGate) await(t *testing.T) context.Context {
	t.Helper()
	return lifeReceive(t, g.begun, "a handler that begins")
}

// lifeReceive receives from a channel to which something should come soon.
func lifeReceive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(lifeSoon):
		require.FailNow(t, "there is not "+what)
		panic("unreachable")
	}
}

// lifeDump returns what is in Redis, by key: leases, markers and records, without fence counters,
// which every lease moves.
func lifeDump(t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	dump := map[string]string{}
	keys := rdb.Scan(t.Context(), 0, "*", 1000).Iterator()
	for keys.Next(t.Context()) {
		if strings.HasSuffix(keys.Val(), ":fence") || strings.Contains(keys.Val(), ":probe:") {
			continue
		}
		value, err := rdb.Dump(t.Context(), keys.Val()).Result()
		if err == redis.Nil { //nolint:errorlint // it has expired since
			continue
		}
		require.NoError(t, err)
		dump[keys.Val()] = value
	}
	require.NoError(t, keys.Err())
	return dump
}

// call calls a handler with a POST that has the key k, without a connection. headers are pairs of
// name and value.
func call(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, path, http.NoBody)
	r.Header.Set("Idempotency-Key", "k")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
