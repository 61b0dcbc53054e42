package guardhttp_test

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// streamsInterfaces are the optional interfaces that a type assertion finds in a writer.
func streamsInterfaces(w http.ResponseWriter) string {
	var found []string
	note := func(name string, ok bool) {
		if ok {
			found = append(found, name)
		}
	}
	_, ok := w.(http.Flusher)
	note("Flusher", ok)
	_, ok = w.(interface{ FlushError() error })
	note("FlushError", ok)
	_, ok = w.(http.Hijacker)
	note("Hijacker", ok)
	_, ok = w.(io.ReaderFrom)
	note("ReaderFrom", ok)
	_, ok = w.(io.StringWriter)
	note("StringWriter", ok)
	_, ok = w.(http.Pusher)
	note("Pusher", ok)
	_, ok = w.(http.CloseNotifier) //nolint:staticcheck // old handlers ask for it
	note("CloseNotifier", ok)
	_, ok = w.(interface{ SetReadDeadline(time.Time) error })
	note("SetReadDeadline", ok)
	_, ok = w.(interface{ SetWriteDeadline(time.Time) error })
	note("SetWriteDeadline", ok)
	_, ok = w.(interface{ EnableFullDuplex() error })
	note("EnableFullDuplex", ok)
	return strings.Join(found, " ")
}

// streamsHidden is a foreign writer that has no optional method but Unwrap.
type streamsHidden struct{ inner http.ResponseWriter }

func (w streamsHidden) Header() http.Header         { return w.inner.Header() }
func (w streamsHidden) Write(p []byte) (int, error) { return w.inner.Write(p) }
func (w streamsHidden) WriteHeader(status int)      { w.inner.WriteHeader(status) }
func (w streamsHidden) Unwrap() http.ResponseWriter { return w.inner }

// streamsFlusher has a Flush without an error.
type streamsFlusher struct{ streamsHidden }

func (w streamsFlusher) Flush() { _ = http.NewResponseController(w.inner).Flush() }

// streamsDeadliner has deadlines, and handles them itself.
type streamsDeadliner struct{ streamsHidden }

var errStreamsDeadline = errors.New("no deadlines here")

func (w streamsDeadliner) SetReadDeadline(time.Time) error  { return errStreamsDeadline }
func (w streamsDeadliner) SetWriteDeadline(time.Time) error { return errStreamsDeadline }

// streamsHijacker has only a method that takes over its connection.
type streamsHijacker struct{ streamsHidden }

func (w streamsHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.inner).Hijack()
}

// streamsOpaque shows nothing at all.
type streamsOpaque struct{ http.ResponseWriter }

// streamsBehind puts every request's writer into another one.
func streamsBehind(hide func(http.ResponseWriter) http.ResponseWriter) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(hide(w), r) })
	}
}

var streamsWriters = map[string]func(http.Handler) http.Handler{
	"net/http":        func(h http.Handler) http.Handler { return h },
	"hidden":          streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsHidden{w} }),
	"only a Flusher":  streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsFlusher{streamsHidden{w}} }),
	"only deadlines":  streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsDeadliner{streamsHidden{w}} }),
	"only a Hijacker": streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsHijacker{streamsHidden{w}} }),
	"opaque":          streamsBehind(func(w http.ResponseWriter) http.ResponseWriter { return streamsOpaque{w} }),
	"TimeoutHandler":  func(h http.Handler) http.Handler { return http.TimeoutHandler(h, lifeSoon, "") },
	"hidden, flusher": streamsBehind(func(w http.ResponseWriter) http.ResponseWriter {
		return streamsFlusher{streamsHidden{streamsHidden{w}}}
	}),
}

// Row 33: the handler finds exactly what it would find without us.
func TestStreams_interfaces(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, behind := range streamsWriters {
			handler := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(streamsInterfaces(w))) }
			address, client := contentServer(t, behind(http.HandlerFunc(handler)), http2, io.Discard)
			bare, err := contentSend(t, client, http.MethodPost, address, "")
			require.NoError(t, err)
			for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithShadow()}, {idempotency.WithMode(idempotency.Reject)}, {idempotency.WithMode(idempotency.Exclusive)}, {idempotency.WithOptionalKey()},
				{idempotency.WithAnswerAfterRecord()}} {
				site := store.site(t, contentSetup{http2: http2, handler: handler, opts: opts,
					mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
						return behind(idempotent(h))
					}})
				require.Equal(t, bare.body, site.post(t, rand.Text(), "").body, name)
			}
			if name == "net/http" {
				require.Contains(t, bare.body, "Flusher FlushError")
				require.Equal(t, !http2, strings.Contains(bare.body, "Hijacker ReaderFrom"))
				require.Equal(t, http2, strings.Contains(bare.body, "Pusher"))
			}
		}
	})
	t.Run("httptest", func(t *testing.T) {
		w := httptest.NewRecorder()
		want := streamsInterfaces(w)
		idempotent, err := guardhttp.New(store.guard, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
		require.NoError(t, err)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
		r.Header.Set("Idempotency-Key", "httptest")
		idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			require.Equal(t, want, streamsInterfaces(w))
		})).ServeHTTP(w, r)
	})
}

// streamsFlushes are the ways to flush.
var streamsFlushes = map[string]func(w http.ResponseWriter){
	"Flusher":    func(w http.ResponseWriter) { w.(http.Flusher).Flush() },
	"FlushError": func(w http.ResponseWriter) { streamsMust(w.(interface{ FlushError() error }).FlushError()) },
	"controller": func(w http.ResponseWriter) { streamsMust(http.NewResponseController(w).Flush()) },
}

// streamsMust panics, and so aborts the handler, if something fails that must not.
func streamsMust(err error) {
	if err != nil {
		panic(err)
	}
}

// Row 32: flushed bytes leave at once, and a retry learns that the handler ran.
func TestStreams_flush(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, flush := range streamsFlushes {
			for _, length := range []string{"", "10"} {
				t.Run(name+", length "+length, func(t *testing.T) {
					var got chan bool // the client has what was flushed
					handler := func(w http.ResponseWriter, _ *http.Request) {
						w.Header().Set("Content-Type", "text/event-stream")
						if length != "" {
							w.Header().Set("Content-Length", length)
						}
						_, _ = io.WriteString(w, "first")
						flush(w)
						<-got
						_, _ = io.WriteString(w, "after")
						flush(w) // the last byte leaves as well
						<-got
					}
					for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithRerun()}} {
						site := store.site(t, contentSetup{http2: http2, handler: handler, opts: opts})
						key := rand.Text()
						for run := range 1 + len(opts) {
							got = make(chan bool)
							r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site.url+"/things", strings.NewReader("b"))
							require.NoError(t, err)
							r.Header.Set("X-Tenant", "acme")
							r.Header.Set("Idempotency-Key", key)
							response, err := site.client.Do(r)
							require.NoError(t, err)
							site.sent++
							part := make([]byte, 5)
							_, err = io.ReadFull(response.Body, part)
							require.NoError(t, err)
							require.Equal(t, "first", string(part), "while the handler runs")

							requireProblem(t, site.post(t, key, "b"), http.StatusConflict, idempotency.InFlight)
							got <- true
							_, err = io.ReadFull(response.Body, part)
							require.NoError(t, err)
							require.Equal(t, "after", string(part))
							got <- true
							rest, err := io.ReadAll(response.Body)
							require.NoError(t, err)
							require.Empty(t, rest)
							require.NoError(t, response.Body.Close())
							site.requireRan(t, run+1)
							site.outcome(t) // the middleware has returned
						}
						if opts == nil {
							requireProblem(t, site.post(t, key, "b"), http.StatusConflict, idempotency.NotReplayable)
							require.NoError(t, site.outcome(t).Err)
							requireProblem(t, site.post(t, key, "c"), http.StatusUnprocessableEntity, idempotency.Mismatch)
							site.requireRan(t, 1)
						}
					}
				})
			}
		}
	})
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
	store := contentRedis(t)
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
					mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
						return behind(idempotent(h))
					}})
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

// A flush that goes past us, behind a writer that hides that it can be done, begins the answer:
// what the handler says afterwards is not in it, and must not be in a replay.
func TestStreams_flushBehindAHiddenWriter(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		behind := streamsWriters["hidden"]
		site := store.site(t, contentSetup{http2: http2,
			handler: func(w http.ResponseWriter, _ *http.Request) {
				streamsMust(http.NewResponseController(w).Flush())
				w.Header().Set("X-Late", "yes")
				w.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(w, "body")
			},
			mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
				return behind(idempotent(h))
			}})
		key := rand.Text()
		first := site.post(t, key, "")
		require.Equal(t, http.StatusOK, first.status)
		require.Empty(t, first.header["X-Late"])
		again := site.post(t, key, "")
		if again.replayed() {
			again.requireReplayOf(t, first)
			require.Empty(t, again.header["X-Late"])
		} else {
			requireProblem(t, again, http.StatusConflict, idempotency.NotReplayable)
		}
	})
}

// A connection that was taken over has been answered on, also if its time is up by the end of
// that.
func TestStreams_hijackThatOutlivesItsTime(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
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
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					return behind(idempotent(h))
				}})
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

// A handler that has got as far as the last byte of an announced length can still flush it, also
// behind a writer that hides that.
func TestStreams_flushOfTheLastByteBehindAHiddenWriter(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		got := make(chan bool, 1)
		handler := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "first")
			streamsMust(http.NewResponseController(w).Flush())
			select {
			case <-got:
			case <-time.After(lifeSoon / 2):
				// the client waits for the last byte, and the handler for the client
				panic(http.ErrAbortHandler)
			}
		}
		send := func(t *testing.T, client *http.Client, address string) {
			t.Helper()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
			require.NoError(t, err)
			r.Header.Set("X-Tenant", "acme")
			r.Header.Set("Idempotency-Key", rand.Text())
			response, err := client.Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			part := make([]byte, 5)
			_, err = io.ReadFull(response.Body, part)
			require.NoError(t, err, "what was flushed: %q", part)
			got <- true
		}
		for _, name := range []string{"hidden", "only deadlines", "only a Hijacker"} {
			behind := streamsWriters[name]
			address, client := contentServer(t, behind(http.HandlerFunc(handler)), http2, io.Discard)
			send(t, client, address)
			site := store.site(t, contentSetup{http2: http2, handler: handler,
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					return behind(idempotent(h))
				}})
			send(t, site.client, site.url)
		}
	})
}

// Row 32: an answer with trailers.
func TestStreams_trailers(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for name, handler := range map[string]http.HandlerFunc{
			"announced": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(w, "body")
				w.Header().Set("X-Sum", "17")
			},
			"announced for a while": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Sum")
				_, _ = io.WriteString(w, "body")
				w.Header().Del("Trailer")
				w.Header().Set("X-Sum", "17")
			},
			"not announced": func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "body")
				streamsMust(http.NewResponseController(w).Flush())
				w.Header().Set(http.TrailerPrefix+"X-Sum", "17")
			},
			"prefixed": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Trailer", "X-Other")
				_, _ = io.WriteString(w, strings.Repeat("body", 5000))
				w.Header().Set(http.TrailerPrefix+"X-Sum", "17")
			},
		} {
			site := store.site(t, contentSetup{http2: http2, handler: handler})
			key := rand.Text()
			first := site.post(t, key, "")
			require.NoError(t, first.err)
			require.Equal(t, "17", first.trailer.Get("X-Sum"), name)
			requireProblem(t, site.post(t, key, ""), http.StatusConflict, idempotency.NotReplayable)
			site.requireRan(t, 1)
		}
		// Trailers that are not sent, because there is no chunk to put them behind. A replay must
		// not differ from what the client saw.
		site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "4")
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "17")
		}})
		key := rand.Text()
		first := site.post(t, key, "")
		require.Equal(t, "body", first.body)
		requireProblem(t, site.post(t, key, ""), http.StatusConflict, idempotency.NotReplayable)
	})
}

// Two of our middlewares, one inside of the other: a retry gets the answer that the client got,
// and one user does one thing at a time.
func TestStreams_twoOfOurs(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
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

// An upgrade without Hijack, which leaves the connection to net/http, is not an answer to replay.
func TestStreams_switchingProtocolsAsAStatus(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Upgrade", "echo")
		w.WriteHeader(http.StatusSwitchingProtocols)
	}})
	conn := site.dial(t)
	conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: k", "Content-Length: 0", "")
	require.Equal(t, http.StatusSwitchingProtocols, conn.receive(t).status)
	require.Equal(t, idempotency.KeepTombstone, site.outcome(t).Kept)
	requireProblem(t, site.post(t, "k", ""), http.StatusConflict, idempotency.NotReplayable)
	site.requireRan(t, 1)
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

// Copying nothing is not yet an answer: net/http sends no header for it, and what the handler says
// then is what counts.
func TestStreams_copyOfNothing(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	open := func() *os.File {
		f, err := os.Open(empty)
		streamsMust(err)
		return f
	}
	broken := errors.New("the upstream is gone")
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Run("an empty file, then a status", func(t *testing.T) {
			site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
				f := open()
				defer f.Close()
				if n, err := io.Copy(w, f); n != 0 || err != nil {
					panic(err)
				}
				w.Header().Set("X-Late", "but in time")
				w.WriteHeader(http.StatusCreated)
			}})
			key := rand.Text()
			first := site.post(t, key, "")
			require.Equal(t, http.StatusCreated, first.status)
			require.Equal(t, http.StatusCreated, site.outcome(t).Status)
			again := site.post(t, key, "")
			again.requireReplayOf(t, first)
			require.Equal(t, first.header["X-Late"], again.header["X-Late"])
		})
		t.Run("a source that fails at once, then a failure", func(t *testing.T) {
			site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
				if _, err := io.Copy(w, streamsFailing{strings.NewReader(""), broken}); err != nil {
					http.Error(w, "no answer from upstream", http.StatusBadGateway)
				}
			}})
			key := rand.Text()
			for range 2 { // which is not kept
				a := site.post(t, key, "")
				require.Equal(t, http.StatusBadGateway, a.status)
				require.False(t, a.replayed())
				o := site.outcome(t)
				require.Equal(t, http.StatusBadGateway, o.Status)
				require.Equal(t, idempotency.KeepNothing, o.Kept)
			}
			site.requireRan(t, 2)
		})
		// the status decides whether anything is
		t.Run("if no answers are kept", func(t *testing.T) {
			site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{idempotency.WithMode(idempotency.Reject)},
				handler: func(w http.ResponseWriter, r *http.Request) {
					f := open()
					defer f.Close()
					if r.URL.Path == "/fails" {
						_, _ = io.Copy(w, f)
						http.Error(w, "no answer from upstream", http.StatusBadGateway)
						return
					}
					_, _ = io.Copy(w, io.LimitReader(strings.NewReader("text"), 4))
					w.WriteHeader(http.StatusBadGateway) // too late
				}})
			key := contentHeader("Idempotency-Key", rand.Text())
			for range 2 {
				require.Equal(t, http.StatusBadGateway, site.send(t, http.MethodPost, "/fails", "", key).status)
				require.Equal(t, http.StatusBadGateway, site.outcome(t).Status)
			}
			require.Equal(t, "text", site.send(t, http.MethodPost, "/works", "", key).body)
			require.Equal(t, http.StatusOK, site.outcome(t).Status)
			requireProblem(t, site.send(t, http.MethodPost, "/works", "", key), http.StatusConflict, idempotency.Done)
		})
		t.Run("nothing at all", func(t *testing.T) {
			site := store.site(t, contentSetup{http2: http2, handler: func(w http.ResponseWriter, _ *http.Request) {
				f := open()
				defer f.Close()
				_, _ = io.Copy(w, f)
				w.Header().Set("X-Late", "but in time")
			}})
			key := rand.Text()
			first := site.post(t, key, "")
			require.Equal(t, http.StatusOK, first.status)
			again := site.post(t, key, "")
			again.requireReplayOf(t, first)
			require.Equal(t, []string{"but in time"}, first.header["X-Late"])
			require.Equal(t, first.header["X-Late"], again.header["X-Late"])
		})
	})
}

// A status that net/http refuses is not recorded as the answer if an outer middleware replaces it.
func TestStreams_statusThatIsNone(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, status := range []int{0, -1, 99, 1000, 12345} {
			site := store.site(t, contentSetup{http2: http2, opts: []guardhttp.Option{guardhttp.WithPolicy(keepAll)},
				handler: func(w http.ResponseWriter, _ *http.Request) {
					defer func() {
						if recover() != nil {
							http.Error(w, "the handler panicked", http.StatusInternalServerError)
						}
					}()
					w.WriteHeader(status)
				}})
			key := rand.Text()
			first := site.post(t, key, "")
			require.Equal(t, http.StatusInternalServerError, first.status, "%d", status)
			require.Equal(t, http.StatusInternalServerError, site.outcome(t).Status)
			site.post(t, key, "").requireReplayOf(t, first)
			site.requireRan(t, 1)
		}
	})
}

// Who writes after the handler has returned, such as a goroutine of its, changes neither the
// answer nor the record.
func TestStreams_writesAfterTheEnd(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, length := range []string{"", "15"} {
			var writer http.ResponseWriter
			site := store.site(t, contentSetup{http2: http2,
				handler: func(w http.ResponseWriter, _ *http.Request) {
					if length != "" {
						w.Header().Set("Content-Length", length)
					}
					_, _ = io.WriteString(w, "it was in time.")
					writer = w
				},
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					inner := idempotent(h)
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						writer = nil
						inner.ServeHTTP(w, r)
						if writer == nil {
							return
						}
						for range 2 {
							if n, err := io.WriteString(writer, "too late"); n != 0 || err == nil {
								panic("it was written")
							}
							if n, err := writer.Write([]byte("too late")); n != 0 || err == nil {
								panic("it was written")
							}
						}
					})
				}})
			key := rand.Text()
			first := site.post(t, key, "")
			require.Equal(t, "it was in time.", first.body)
			site.post(t, key, "").requireReplayOf(t, first)
		}
	})
}

// Too much for an announced length, over HTTP/2, which does not refuse it at once: it is the
// handler's mistake, and never replayed as something that the client has not had.
func TestStreams_tooMuchOverHTTP2(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
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
