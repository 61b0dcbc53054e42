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
	if !w.sent && status >= http.StatusOK {
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

// Some writers send the status of the last WriteHeader before the first byte, and others that of
// the first. What counts is what the client got.
func TestLazy_statusIsTheOneThatTheWriterSent(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
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
				mount: mountBehind(c.behind)})
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
