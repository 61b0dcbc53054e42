package guardhttp_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// track is idempotency.Track for a request.
func track(r *http.Request) (*http.Request, func() idempotency.Outcome) {
	ctx, outcome := idempotency.Track(r.Context())
	return r.WithContext(ctx), outcome
}

// A contentStore is a store of the test's own, with a Guard over it.
type contentStore struct {
	server *redistest.Server // nil is a store in memory
	rdb    *redis.Client
	guard  *guard.Guard
	asked  func() int // how often a store in memory was asked
}

func contentRedis(t *testing.T) *contentStore {
	t.Helper()
	s := &contentStore{server: redistest.Start(t)}
	s.rdb = s.server.Client(t, func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = lifeSoon, lifeSoon })
	s.guard = lifeGuard(t, single.New(s.rdb))
	return s
}

// contentMemory returns a store in memory.
func contentMemory(t *testing.T) *contentStore {
	t.Helper()
	store := &guardtest.Scripted{Inner: memory.New()}
	return &contentStore{guard: lifeGuard(t, store), asked: func() int { return len(store.Calls()) }}
}

// leases returns what is in Redis for each key of the middleware: a lease, or what it has left.
func (s *contentStore) leases(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	keys := s.rdb.Scan(t.Context(), 0, "*:lease:*", 1000).Iterator()
	for keys.Next(t.Context()) {
		value, err := s.rdb.Get(t.Context(), keys.Val()).Result()
		require.NoError(t, err)
		found[keys.Val()] = value
	}
	require.NoError(t, keys.Err())
	return found
}

// record returns the only record in Redis: the key, what stands before the record, and the record.
func (s *contentStore) record(t *testing.T) (key, head, record string) {
	t.Helper()
	leases := s.leases(t)
	require.Len(t, leases, 1)
	for k, value := range leases {
		head, rest, found := strings.Cut(value, "\n")
		require.True(t, found)
		require.Equal(t, "D", head[:1], "a marker that work is done")
		_, length, _ := strings.Cut(head, " ")
		label, err := strconv.Atoi(length)
		require.NoError(t, err)
		return k, head + "\n" + rest[:label], rest[label:]
	}
	return "", "", ""
}

// A contentSetup is how a contentSite is made; all of it can be left out.
type contentSetup struct {
	key     guardhttp.KeyFunc // or IdempotencyKey
	opts    []guardhttp.Option
	global  bool // no scope; otherwise it is the header X-Tenant
	http2   bool
	handler http.HandlerFunc
	// mount makes the handler of the server; otherwise it is the handler behind the middleware.
	mount func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler
}

// A contentSite is a server with a handler behind the middleware, over real connections.
type contentSite struct {
	*contentStore
	url    string
	client *http.Client
	log    contentLog // of net/http
	ran    atomic.Int64
	sent   int
	seen   outcomeLog
}

func (s *contentStore) site(t *testing.T, setup contentSetup) *contentSite {
	t.Helper()
	site := &contentSite{contentStore: s}
	opts := []guardhttp.Option{idempotency.WithObserver(site.seen.observer())}
	if !setup.global {
		opts = append(opts, guardhttp.WithScope(tenant))
	} else {
		opts = append(opts, idempotency.WithGlobalKeys())
	}
	if setup.key == nil {
		setup.key = guardhttp.IdempotencyKey
	}
	idempotent, err := guardhttp.New(s.guard, setup.key, append(opts, setup.opts...)...)
	require.NoError(t, err)
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site.ran.Add(1)
		setup.handler(w, r)
	})
	var all http.Handler
	if setup.mount != nil {
		all = setup.mount(idempotent, counted)
	} else {
		all = idempotent(counted)
	}
	site.url, site.client = contentServer(t, all, setup.http2, &site.log)
	return site
}

// A contentEdit changes a request before it is sent.
type contentEdit func(*http.Request)

func contentHeader(name string, values ...string) contentEdit {
	return func(r *http.Request) { r.Header[http.CanonicalHeaderKey(name)] = values }
}

// contentChunked sends the body without its length.
func contentChunked(r *http.Request) { r.ContentLength = -1 }

// post sends a request with a key to the site.
func (s *contentSite) post(t *testing.T, key, body string, edits ...contentEdit) httpAnswer {
	t.Helper()
	return s.send(t, http.MethodPost, "/things", body, append([]contentEdit{contentHeader("Idempotency-Key", key)}, edits...)...)
}

// send sends a request of tenant acme, without a key.
func (s *contentSite) send(t *testing.T, method, path, body string, edits ...contentEdit) httpAnswer {
	t.Helper()
	a, err := s.try(t, method, path, body, edits...)
	require.NoError(t, err)
	return a
}

// try sends a request that need not be answered.
func (s *contentSite) try(t *testing.T, method, path, body string, edits ...contentEdit) (httpAnswer, error) {
	t.Helper()
	s.sent++
	return contentSend(t, s.client, method, s.url+path, body, edits...)
}

func contentSend(t *testing.T, client *http.Client, method, address, body string, edits ...contentEdit) (httpAnswer, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("X-Tenant", "acme")
	for _, edit := range edits {
		edit(r)
	}
	return do(client, r)
}

// outcome returns that of the last request that was sent.
func (s *contentSite) outcome(t *testing.T) idempotency.Outcome {
	t.Helper()
	s.seen.await(t, s.sent)
	all := s.seen.seen()
	require.Len(t, all, s.sent)
	return all[len(all)-1]
}

func (s *contentSite) requireRan(t *testing.T, times int) {
	t.Helper()
	require.EqualValues(t, times, s.ran.Load(), "how often the handler ran")
}

// dial opens a connection to the site, counted as one request.
func (s *contentSite) dial(t *testing.T) *contentConn {
	t.Helper()
	s.sent++
	return contentDial(t, s.url)
}

// contentProtocols runs a test over HTTP/1.1 and over HTTP/2.
func contentProtocols(t *testing.T, test func(t *testing.T, http2 bool)) {
	t.Helper()
	for name, http2 := range map[string]bool{"HTTP 1.1": false, "HTTP 2": true} {
		t.Run(name, func(t *testing.T) { test(t, http2) })
	}
}

// contentEcho answers with the body of the request.
func contentEcho(w http.ResponseWriter, r *http.Request) {
	all, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	_, _ = w.Write(all)
}

// Rows 1 and 2.
func TestContent_aRetryGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, r *http.Request) {
			all, _ := io.ReadAll(r.Body)
			w.Header().Set("Location", "/claims/17")
			w.Header().Set("X-Protocol", r.Proto)
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, "claimed by %s", all)
		}})
		key := rand.Text()
		first := site.post(t, key, "me")
		require.Equal(t, http.StatusCreated, first.status)
		require.Equal(t, "claimed by me", first.body)
		require.Equal(t, "/claims/17", first.header.Get("Location"))
		require.Equal(t, map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2], first.header.Get("X-Protocol"))
		require.False(t, first.replayed())
		o := site.outcome(t)
		require.Equal(t, idempotency.Ran, o.Result)
		require.Equal(t, idempotency.KeepAnswer, o.Kept)
		require.Equal(t, http.StatusCreated, o.Status)

		for range 3 {
			again := site.post(t, key, "me")
			again.requireReplayOf(t, first)
			require.EqualValues(t, len(first.body), again.length)
			o := site.outcome(t)
			require.Equal(t, idempotency.Replayed, o.Result)
			require.Equal(t, http.StatusCreated, o.Status)
			require.Equal(t, idempotency.KeepNothing, o.Kept)
			require.NoError(t, o.Err)
		}
		site.requireRan(t, 1)
		require.Equal(t, "claimed by me", site.post(t, rand.Text(), "me").body)
		site.requireRan(t, 2)
	})
}
