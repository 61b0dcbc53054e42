package guardhttp_test

import (
	"crypto/rand"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

// An outerWriter is one that a middleware for logs and sessions puts in front, as chi's does: it
// knows the status that it has sent, and adds a cookie when it sends it.
type outerWriter struct {
	http.ResponseWriter
	status int
}

func (w *outerWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
		w.Header().Add("Set-Cookie", "session=1")
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *outerWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

func (w *outerWriter) Status() int { return w.status }

func (w *outerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// behindOuter puts an outerWriter in front of a handler. It sends the header in the end.
func behindOuter(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		outer := &outerWriter{ResponseWriter: w}
		h.ServeHTTP(outer, r)
		outer.WriteHeader(http.StatusOK)
	})
}

// An outerFlusher also has optional methods of its own. It may flush in name only.
type outerFlusher struct {
	*outerWriter
	flushes bool
}

func (w outerFlusher) Flush() {
	if w.flushes {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

func (w outerFlusher) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// A handler that flushes first has answered 200, and without a content type, whatever a writer in
// front makes of the flush.
func TestOuter_flushFirst(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		for _, flushes := range []bool{true, false} {
			site := store.site(t, contentSetup{
				http2: http2,
				handler: func(w http.ResponseWriter, _ *http.Request) {
					_ = http.NewResponseController(w).Flush()
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, "text")
				},
				mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						idempotent(h).ServeHTTP(outerFlusher{&outerWriter{ResponseWriter: w}, flushes}, r)
					})
				},
			})
			key := rand.Text()
			first := site.post(t, key, "")
			require.Equal(t, http.StatusOK, first.status)
			again := site.post(t, key, "")
			require.True(t, again.replayed())
			require.Equal(t, http.StatusOK, again.status)
			require.Equal(t, "text", again.body)
			require.Empty(t, again.header["Content-Type"])
			if flushes {
				again.requireReplayOf(t, first)
			}
		}
	})
}

// What a writer in front adds to the header reaches the client, also if another one in front of
// that sends the header only in the end.
func TestOuter_whatAWriterAddsIsSent(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, outermost := range map[string]func(http.Handler) http.Handler{"TimeoutHandler": streamsWriters["TimeoutHandler"], "lazy": behindLazy} {
		site := store.site(t, contentSetup{
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusCreated)
				_, _ = io.WriteString(w, "text")
			},
			mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
				return outermost(behindOuter(idempotent(h)))
			},
		})
		key := rand.Text()
		for range 2 {
			a := site.post(t, key, "")
			require.Equal(t, http.StatusCreated, a.status)
			require.Equal(t, []string{"session=1"}, a.header["Set-Cookie"], name)
		}
		site.requireRan(t, 1)
	}
}

// A handler or a policy that panics leaves nothing of an answer that has begun: what a middleware
// in front answers has none of its headers.
func TestOuter_aPanicLeavesNoHeaderOfAnAnswer(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{
		opts: []guardhttp.Option{guardhttp.WithPolicy(func(int, http.Header) bool { panic("a mistake") })},
		handler: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			if r.URL.Path == "/early" {
				panic("a mistake")
			}
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, "text")
			if r.URL.Path == "/late" {
				panic("a mistake")
			}
		},
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if recover() != nil {
						http.Error(w, "sorry", http.StatusInternalServerError)
					}
				}()
				idempotent(h).ServeHTTP(w, r)
			})
		},
	})
	for path, coding := range map[string]string{"/policy": "", "/late": "", "/early": "br"} {
		a := site.send(t, http.MethodPost, path, "", contentHeader("Idempotency-Key", rand.Text()))
		require.Equal(t, http.StatusInternalServerError, a.status)
		require.Equal(t, "sorry\n", a.body)
		require.Equal(t, coding, a.header.Get("Content-Encoding"), path)
	}
}
