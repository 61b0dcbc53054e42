package guardhttp_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A lazyWriter sends its status and header with the first byte, as those of gin and of many
// compressors do.
type lazyWriter struct {
	http.ResponseWriter
	status int
	sent   bool
}

func (w *lazyWriter) WriteHeader(status int) {
	if !w.sent {
		w.status = status
	}
}

func (w *lazyWriter) Write(p []byte) (int, error) {
	w.send()
	return w.ResponseWriter.Write(p)
}

func (w *lazyWriter) Flush() {
	w.send()
	_ = http.NewResponseController(w.ResponseWriter).Flush()
}

// Status is like that of gin: the last status before the first byte counts.
func (w *lazyWriter) Status() int { return w.status }

func (w *lazyWriter) WriteHeaderNow() { w.send() }

func (w *lazyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *lazyWriter) send() {
	if !w.sent {
		w.sent = true
		w.ResponseWriter.WriteHeader(w.status)
	}
}

// behindLazy puts a lazyWriter in front of a handler. The framework sends the header in the end.
func behindLazy(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lazy := &lazyWriter{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(lazy, r)
		lazy.send()
	})
}

// net/http does not send a header that the handler sets after WriteHeader. Behind other writers,
// some of which would send it, it is sent. The replay has it if the first answer had it.
func TestLazy_headersAreThoseThatTheWriterSent(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	for name, c := range map[string]struct {
		behind func(http.Handler) http.Handler
		sent   bool
	}{
		"lazy":           {behindLazy, true},
		"TimeoutHandler": {streamsWriters["TimeoutHandler"], true},
		"net/http":       {streamsWriters["net/http"], false},
		"hidden":         {streamsWriters["hidden"], true},
		"only a Flusher": {streamsWriters["only a Flusher"], true},
	} {
		for how, send := range map[string]func(w http.ResponseWriter){
			"Write":    func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"id":1}`)) },
			"copy":     func(w http.ResponseWriter) { _, _ = io.Copy(w, io.LimitReader(rand.Reader, 5000)) },
			"nothing":  func(http.ResponseWriter) {},
			"announce": func(w http.ResponseWriter) { w.Header().Set("Content-Length", "2"); _, _ = w.Write([]byte("{}")) },
			"flush": func(w http.ResponseWriter) {
				_ = http.NewResponseController(w).Flush()
				_, _ = w.Write([]byte(`{"id":1}`))
			},
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				contentProtocols(t, func(t *testing.T, http2 bool) {
					site := store.site(t, contentSetup{http2: http2,
						handler: func(w http.ResponseWriter, _ *http.Request) {
							w.Header().Set("X-Early", "early")
							w.Header().Set("X-Both", "early")
							w.WriteHeader(http.StatusCreated)
							w.Header().Set("Content-Type", "application/json")
							w.Header().Set("X-Both", "late")
							w.Header().Set("Set-Cookie", "a=b")
							send(w)
						},
						mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
							return headersOuter(func(h http.Header) { h.Set("X-Request-Id", rand.Text()) })(
								func(h http.Handler) http.Handler { return c.behind(idempotent(h)) }, h)
						}})
					key := rand.Text()
					first := site.post(t, key, "")
					require.Equal(t, http.StatusCreated, first.status)
					require.Equal(t, c.sent, first.header.Get("Content-Type") == "application/json", first.header)
					again := site.post(t, key, "")
					again.requireReplayOf(t, first)
					for _, name := range []string{"X-Early", "X-Both", "Content-Type"} {
						require.Equal(t, first.header[name], again.header[name], name)
					}
					require.NotEqual(t, first.header.Get("X-Request-Id"), again.header.Get("X-Request-Id"))
					require.Empty(t, again.header["Set-Cookie"])
				})
			})
		}
	}
}

// Some writers send the status of the last WriteHeader before the first byte, and others that of
// the first. What counts is what the client got.
func TestLazy_statusIsTheOneThatTheWriterSent(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	for name, c := range map[string]struct {
		behind func(http.Handler) http.Handler
		status int
	}{
		"lazy":     {behindLazy, http.StatusServiceUnavailable},
		"net/http": {streamsWriters["net/http"], http.StatusCreated},
		"hidden":   {streamsWriters["hidden"], http.StatusCreated},
	} {
		for _, mode := range []idempotency.Mode{idempotency.Replay, idempotency.Exclusive} {
			site := store.site(t, contentSetup{opts: []guardhttp.Option{idempotency.WithMode(mode)},
				handler: func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(http.StatusCreated)
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = io.WriteString(w, "text")
				},
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					return c.behind(idempotent(h))
				}})
			key := rand.Text()
			require.Equal(t, c.status, site.post(t, key, "").status, name)
			require.Equal(t, c.status, site.outcome(t).Status, name)
			runs := 2
			if c.status == http.StatusCreated && mode == idempotency.Replay {
				runs = 1
			}
			require.Equal(t, c.status, site.post(t, key, "").status, name)
			site.requireRan(t, runs)
		}
	}
}
