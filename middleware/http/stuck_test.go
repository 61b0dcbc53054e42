package guardhttp_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A client that has stopped reading its answer, or sending its body, keeps its key for no more
// than a moment beyond WithMaxHold.
func TestStuck_clientsLoseTheirKey(t *testing.T) {
	t.Parallel()
	const maxHold = 100 * time.Millisecond
	store := contentMemory(t)
	forever := func(w http.ResponseWriter, _ *http.Request) {
		part := make([]byte, 1<<20)
		for range 1000 {
			if _, err := w.Write(part); err != nil {
				return
			}
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		opts    []guardhttp.Option
		length  int
	}{
		"writes":              {handler: forever},
		"writes, not kept":    {handler: forever, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive)}},
		"writes, with flush":  {handler: func(w http.ResponseWriter, r *http.Request) { w.(http.Flusher).Flush(); forever(w, r) }},
		"writes a large part": {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 64<<20)) }},
		"copies":              {handler: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, io.LimitReader(rand.Reader, 64<<20)) }},
		"reads": {handler: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body) }, length: 10,
			opts: []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			contentProtocols(t, func(t *testing.T, http2 bool) {
				ended := make(chan time.Duration, 1)
				site := store.site(t, contentSetup{http2: http2, opts: append(c.opts, idempotency.WithMaxHold(maxHold)),
					handler: func(w http.ResponseWriter, r *http.Request) {
						start := time.Now()
						defer func() { ended <- time.Since(start) }()
						c.handler(w, r)
					}})
				if http2 {
					body, end := io.Pipe() // nothing is ever sent in it
					defer end.Close()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.url+"/things", nil)
					require.NoError(t, err)
					if c.length > 0 {
						r.Body, r.ContentLength = body, int64(c.length)
					}
					r.Header.Set("X-Tenant", "acme")
					r.Header.Set("Idempotency-Key", rand.Text())
					site.sent++
					go func() {
						if response, err := site.client.Do(r); err == nil {
							<-t.Context().Done() // without reading
							_ = response.Body.Close()
						}
					}()
				} else {
					conn := site.dial(t)
					require.NoError(t, conn.Conn.(*net.TCPConn).SetReadBuffer(4096))
					conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+rand.Text(),
						fmt.Sprint("Content-Length: ", c.length), "")
				}
				took := lifeReceive(t, ended, "the handler's end")
				require.GreaterOrEqual(t, took, maxHold)
				require.Less(t, took, 10*time.Second)
				site.outcome(t) // the middleware has returned
			})
		})
	}
}

// The same goes for a goroutine of the handler that waits for the client when the handler returns.
func TestStuck_goroutinesOfTheHandler(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic(http.ErrAbortHandler) }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			written := make(chan error, 1)
			site := store.site(t, contentSetup{opts: []guardhttp.Option{idempotency.WithMaxHold(300 * time.Millisecond)},
				handler: func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).Flush()
					go func() {
						_, err := w.Write(make([]byte, 64<<20))
						written <- err
					}()
					time.Sleep(100 * time.Millisecond) // by then it waits for the client
					end()
				}})
			conn := site.dial(t)
			require.NoError(t, conn.Conn.(*net.TCPConn).SetReadBuffer(4096))
			conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+rand.Text(), "Content-Length: 0", "")
			site.outcome(t) // the middleware has returned
			require.Error(t, lifeReceive(t, written, "the end of the write"))
		})
	}
}

// A connection whose write deadline was set for one request serves the next one without it.
func TestStuck_theConnectionServesTheNextRequest(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{idempotency.WithMaxHold(20 * time.Millisecond)},
			handler: func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("X-Slow") != "" {
					time.Sleep(1500 * time.Millisecond) // longer than the deadline
					contentEcho(w, r)
					return
				}
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
				time.Sleep(20 * time.Millisecond) // so that the deadline is set by now
				contentEcho(w, r)
			}})
		first := site.post(t, rand.Text(), "first")
		require.NoError(t, first.err)
		require.Equal(t, "first", first.body)
		second := site.post(t, rand.Text(), "second", contentHeader("X-Slow", "yes"))
		require.NoError(t, second.err)
		require.Equal(t, "second", second.body)
	})
}
