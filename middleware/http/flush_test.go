package guardhttp_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// flushMax is the largest answer of these tests that is kept.
const flushMax = 20_000

// A flush does not keep an answer from being replayed: the client gets the same status, headers
// and body, at once and with its length. Only a stream leaves a tombstone.
func TestFlush_answersAreReplayed(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	parts := func(n int, part string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusCreated)
			for range n {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
	one := func(body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) }
	}
	copied := func(n int64) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(n))
			_, _ = io.Copy(w, io.LimitReader(rand.Reader, n))
		}
	}
	typed := func(kind string, h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			h(w, r)
		}
	}
	for name, c := range map[string]struct {
		handler  http.HandlerFunc
		replayed bool
	}{
		"parts":                      {parts(10, "a part\n"), true},
		"NDJSON":                     {typed("application/x-ndjson", parts(10, "{}\n")), true},
		"up to the bound":            {parts(10, strings.Repeat("x", flushMax/10)), true},
		"beyond the bound":           {parts(10, strings.Repeat("x", flushMax/10+1)), false},
		"one write up to the bound":  {one(streamsBytes(flushMax)), true},
		"one write beyond the bound": {one(streamsBytes(flushMax + 1)), false},
		"a copy up to the bound":     {copied(flushMax), true},
		"a copy beyond the bound":    {copied(flushMax + 1), false},
		"too many headers": {func(w http.ResponseWriter, _ *http.Request) {
			for i := range 257 {
				w.Header().Set(fmt.Sprint("X-", i), "v")
			}
		}, false},
		"events":                        {typed("text/event-stream", parts(2, "data: x\n\n")), false},
		"events, with a parameter":      {typed("Text/Event-Stream; charset=utf-8", parts(2, "data: x\n\n")), false},
		"the type shows as it is seen":  {func(w http.ResponseWriter, r *http.Request) { parts(1, "<")(w, r); parts(1, "html>")(w, r) }, true},
		"a flush before the first byte": {func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); parts(1, "<html>")(w, r) }, true},
		"its length is announced": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			parts(2, "12345")(w, r)
		}, true},
		"the handler says that it is a stream": {func(w http.ResponseWriter, r *http.Request) {
			idempotency.SetKeep(r.Context(), idempotency.KeepTombstone)
			parts(2, "x")(w, r)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				site := store.site(t, contentSetup{http2: http2, handler: c.handler, opts: []guardhttp.Option{idempotency.WithMaxAnswer(flushMax)}})
				key := rand.Text()
				first := site.post(t, key, "")
				site.outcome(t) // the middleware has returned
				again := site.post(t, key, "")
				site.requireRan(t, 1)
				if !c.replayed {
					requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
					return
				}
				again.requireReplayOf(t, first)
				require.EqualValues(t, len(first.body), again.length, "a replay has a length")
			})
		})
	}
}

// A proxy flushes answers whose length it does not know.
func TestFlush_answersOfAReverseProxyAreReplayed(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for _, size := range []int{10, 2049, 10_000, flushMax} {
		for _, announced := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, announced %t", size, announced), func(t *testing.T) {
				backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if announced {
						w.Header().Set("Content-Length", fmt.Sprint(size))
					}
					w.Header().Set("Location", "/claims/1")
					w.WriteHeader(http.StatusCreated)
					_, _ = w.Write(streamsBytes(size))
				}))
				t.Cleanup(backend.Close)
				to, err := url.Parse(backend.URL)
				require.NoError(t, err)
				proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
				contentProtocols(t, func(t *testing.T, http2 bool) {
					site := store.site(t, contentSetup{http2: http2, handler: proxy.ServeHTTP, opts: []guardhttp.Option{idempotency.WithMaxAnswer(flushMax)}})
					key := rand.Text()
					first := site.post(t, key, "")
					require.Equal(t, http.StatusCreated, first.status)
					require.Len(t, first.body, size)
					site.outcome(t)
					site.post(t, key, "").requireReplayOf(t, first)
					site.requireRan(t, 1)
				})
			})
		}
	}
}

// A handler that flushes does not learn that its client has gone, unless its answer is a stream:
// the retry gets all of it.
func TestFlush_aClientThatHasGone(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprint("stream ", stream), func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				clients := make(chan context.Context, 2)
				learned := make(chan error, 1)
				site := store.site(t, contentSetup{http2: http2, mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					inner := idempotent(h)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						clients <- r.Context()
						inner.ServeHTTP(w, r)
					})
				}, handler: func(w http.ResponseWriter, r *http.Request) {
					if stream {
						idempotency.SetKeep(r.Context(), idempotency.KeepTombstone)
					}
					_, _ = io.WriteString(w, "first ")
					streamsMust(http.NewResponseController(w).Flush())
					<-(<-clients).Done() // the server has noticed that the client has gone
					// the end of a connection reaches a writer after a while on a busy machine
					for start, n := time.Now(), 0; n < 1000 || stream && time.Since(start) < lifeSoon; n++ {
						_, err := io.WriteString(w, "x")
						if err == nil {
							err = http.NewResponseController(w).Flush()
						}
						if err != nil {
							learned <- err
							return
						}
					}
					learned <- nil
				}})
				key := rand.Text()
				ctx, cancel := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, site.url+"/things", http.NoBody)
				require.NoError(t, err)
				r.Header.Set("X-Tenant", "acme")
				r.Header.Set("Idempotency-Key", key)
				site.sent++
				response, err := site.client.Do(r)
				require.NoError(t, err)
				cancel()
				_ = response.Body.Close()
				err = lifeReceive(t, learned, "the handler's end")
				site.outcome(t)
				again := site.post(t, key, "")
				if stream {
					require.Error(t, err)
					requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
					return
				}
				require.NoError(t, err)
				require.True(t, again.replayed())
				require.Equal(t, "first "+strings.Repeat("x", 1000), again.body)
			})
		})
	}
}
