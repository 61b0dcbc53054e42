package guardhttp_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Row 32: flushed bytes leave at once, also the last one of an announced length, and also behind
// writers that hide that they can be flushed. A retry gets the same.
func TestStreams_flush(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for _, c := range []struct{ behind, how string }{
		{"net/http", "Flusher"}, {"net/http", "FlushError"}, {"net/http", "controller"}, {"outer", "controller"},
		{"hidden", "controller"}, {"only deadlines", "controller"}, {"only a Hijacker", "controller"},
	} {
		for _, length := range []string{"", "10"} {
			t.Run(fmt.Sprint(c, ", length ", length), func(t *testing.T) {
				contentProtocols(t, func(t *testing.T, http2 bool) {
					got := make(chan bool) // the client has what was flushed
					site := store.site(t, contentSetup{http2: http2, mount: mountBehind(streamsWriters[c.behind]), handler: func(w http.ResponseWriter, r *http.Request) {
						w.Header().Set("Content-Type", "text/plain")
						if length != "" {
							w.Header().Set("Content-Length", length)
						}
						for _, part := range []string{"first", "after"} {
							_, _ = io.WriteString(w, part)
							streamsFlushes[c.how](w)
							select {
							case <-got:
							case <-r.Context().Done():
							}
						}
					}})
					key := rand.Text()
					r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.url+"/things", http.NoBody)
					require.NoError(t, err)
					r.Header.Set("X-Tenant", "acme")
					r.Header.Set("Idempotency-Key", key)
					response, err := site.client.Do(r)
					require.NoError(t, err)
					defer response.Body.Close()
					site.sent++
					for _, want := range []string{"first", "after"} {
						part := make([]byte, 5)
						_, err = io.ReadFull(response.Body, part)
						require.NoError(t, err)
						require.Equal(t, want, string(part), "while the handler runs")
						got <- true
					}
					rest, err := io.ReadAll(response.Body)
					require.NoError(t, err)
					require.Empty(t, rest)
					site.outcome(t) // the middleware has returned
					require.Equal(t, "firstafter", site.post(t, key, "").body)
					site.requireRan(t, 1)
				})
			})
		}
	}
}

// streamsUpgrade takes over the connection and echoes a line, as a websocket would.
func streamsUpgrade(hijack func(w http.ResponseWriter) (io.ReadWriteCloser, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, err := hijack(w)
		streamsMust(err)
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
		streamsMust(err)
		line := make([]byte, 5)
		_, err = io.ReadFull(conn, line)
		streamsMust(err)
		_, err = conn.Write(bytes.ToUpper(line))
		streamsMust(err)
	}
}

type streamsConn struct {
	io.Reader
	io.WriteCloser
}

func streamsAssertHijack(w http.ResponseWriter) (io.ReadWriteCloser, error) {
	conn, rw, err := w.(http.Hijacker).Hijack()
	return streamsConn{rw, conn}, err
}

func streamsControlHijack(w http.ResponseWriter) (io.ReadWriteCloser, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	return streamsConn{rw, conn}, nil
}

// Row 32: a connection that was taken over, also behind writers that hide that it can be.
func TestStreams_hijack(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, c := range map[string]struct {
		hijack func(http.ResponseWriter) (io.ReadWriteCloser, error)
		behind string
	}{
		"Hijacker":           {streamsAssertHijack, "net/http"},
		"controller":         {streamsControlHijack, "net/http"},
		"controller, hidden": {streamsControlHijack, "hidden"},
		"controller, behind": {streamsControlHijack, "hidden, flusher"},
	} {
		t.Run(name, func(t *testing.T) {
			behind := streamsWriters[c.behind]
			for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithRerun()}} {
				site := store.site(t, contentSetup{handler: streamsUpgrade(c.hijack), opts: opts,
					mount: mountBehind(behind)})
				key := rand.Text()
				for run := range 1 + len(opts) {
					conn := site.dial(t)
					conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: "+key, "Content-Length: 0",
						"Connection: Upgrade", "Upgrade: echo", "")
					require.Equal(t, http.StatusSwitchingProtocols, conn.receive(t).status)
					site.requireRan(t, run+1)
					requireProblem(t, site.post(t, key, ""), http.StatusConflict, idempotency.InFlight)
					_, err := io.WriteString(conn, "hello")
					require.NoError(t, err)
					echo, err := io.ReadAll(conn.in)
					require.NoError(t, err)
					require.Equal(t, "HELLO", string(echo))
					site.outcome(t) // the middleware has returned
				}
				if opts == nil {
					for range 2 {
						requireProblem(t, site.post(t, key, ""), http.StatusConflict, idempotency.NotReplayable)
					}
					site.requireRan(t, 1)
				}
				require.Empty(t, site.log.String(), "net/http has nothing to complain of")
			}
		})
	}
}

// A connection that was taken over has been answered on, also if its time is up by the end of
// that.
func TestStreams_hijackThatOutlivesItsTime(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for _, name := range []string{"net/http", "hidden", "only a Flusher", "only deadlines", "only a Hijacker"} {
		t.Run(name, func(t *testing.T) {
			behind := streamsWriters[name]
			site := store.site(t, contentSetup{opts: []guardhttp.Option{idempotency.WithMaxHold(20 * time.Millisecond)},
				handler: func(w http.ResponseWriter, r *http.Request) {
					conn, err := streamsControlHijack(w)
					streamsMust(err)
					defer conn.Close()
					<-r.Context().Done()
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
				},
				mount: mountBehind(behind)})
			key := rand.Text()
			require.Equal(t, "hi", site.post(t, key, "").body)
			o := site.outcome(t)
			require.Equal(t, idempotency.KeepTombstone, o.Kept)
			require.Zero(t, o.Status)
			requireProblem(t, site.post(t, key, ""), http.StatusConflict, idempotency.NotReplayable)
			site.requireRan(t, 1)
		})
	}
}

// Two of our middlewares, one inside of the other: a retry gets the answer that the client got,
// and one user does one thing at a time.
func TestStreams_twoOfOurs(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, mode := range []idempotency.Mode{idempotency.Exclusive, idempotency.Replay} {
			user := "u" + rand.Text()
			perUser, err := guardhttp.New(store.guard, guardhttp.FromHeader("X-User"), idempotency.WithGlobalKeys(), idempotency.WithGroup(rand.Text()),
				idempotency.WithMode(mode), idempotency.WithOptionalKey())
			require.NoError(t, err)
			for name, c := range map[string]struct {
				answer   func(w http.ResponseWriter)
				replayed bool
			}{
				"short":     {func(w http.ResponseWriter) { w.WriteHeader(http.StatusCreated); _, _ = io.WriteString(w, "short") }, true},
				"announced": {func(w http.ResponseWriter) { w.Header().Set("Content-Length", "5"); _, _ = io.WriteString(w, "12345") }, true},
				"nothing":   {func(http.ResponseWriter) {}, true},
				"flushed":   {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "flushed"); w.(http.Flusher).Flush() }, true},
				"events": {func(w http.ResponseWriter) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: event\n\n")
				}, false},
				"large": {func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, (1<<20)+1)) }, false},
			} {
				site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) { c.answer(w) },
					mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
						return idempotent(perUser(h))
					}})
				key := rand.Text()
				first := site.post(t, key, "", contentHeader("X-User", user+name))
				require.NoError(t, first.err)
				require.False(t, first.replayed())
				site.outcome(t)
				again := site.post(t, key, "", contentHeader("X-User", user+name))
				if c.replayed {
					again.requireReplayOf(t, first)
				} else {
					requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
				}
				site.requireRan(t, 1)
			}
		}
	})
}

// streamsFailing is a source that fails after what it has.
type streamsFailing struct {
	io.Reader
	err error
}

func (r streamsFailing) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

// Too much for an announced length, over HTTP/2, which does not refuse it at once: it is the
// handler's mistake, and never replayed as something that the client has not had.
func TestStreams_tooMuchOverHTTP2(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, parts := range map[string][]string{
		"at once": {"1234567"}, "in parts": {"123", "4567"}, "and what would fit": {"123", "4567", "45"}, "exactly, and more": {"12345", "6"},
		"flushed by size":       {strings.Repeat("1", 5), strings.Repeat("2", 5000)},
		"more, then exactly":    {"1234567", "12345"},
		"large, then something": {strings.Repeat("1", 6000), "12345"},
	} {
		site := store.site(t, contentSetup{http2: true, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			for _, p := range parts {
				_, _ = io.WriteString(w, p)
			}
		}})
		key := rand.Text()
		first, err := site.try(t, http.MethodPost, "/things", "", contentHeader("Idempotency-Key", key))
		site.outcome(t) // the middleware has returned
		again := site.post(t, key, "")
		if again.replayed() {
			require.NoError(t, err, name)
			require.NoError(t, first.err, "%s: the client has got %q, and the replay is %q", name, first.body, again.body)
			again.requireReplayOf(t, first)
		} else {
			requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
		}
		site.requireRan(t, 1)
	}
}
