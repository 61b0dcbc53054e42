package guardhttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An elsewhereBuffer is a writer that leads nowhere, as that of fasthttp's adaptor.
type elsewhereBuffer struct {
	header http.Header
	to     http.ResponseWriter
}

func (b *elsewhereBuffer) Header() http.Header         { return b.header }
func (b *elsewhereBuffer) WriteHeader(status int)      { b.to.WriteHeader(status) }
func (b *elsewhereBuffer) Write(p []byte) (int, error) { return b.to.Write(p) }

// An elsewhereNil is one whose Unwrap method returns nil.
type elsewhereNil struct{ elsewhereBuffer }

func (*elsewhereNil) Unwrap() http.ResponseWriter { return nil }

// elsewhereWritten are writers of frameworks: those of gin and negroni, and those of iris.
type (
	elsewhereGin struct {
		http.ResponseWriter
		status int
	}
	elsewhereIris struct {
		http.ResponseWriter
		status int
	}
	elsewhereEmbedding struct{ http.ResponseWriter }
	elsewhereInside    struct{ elsewhereEmbedding }
)

func (w *elsewhereGin) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
func (w *elsewhereGin) Status() int   { return w.status }
func (w *elsewhereGin) Written() bool { return w.status != 0 }
func (w *elsewhereIris) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
func (w *elsewhereIris) StatusCode() int { return max(w.status, http.StatusOK) }
func (w *elsewhereIris) Written() int {
	if w.status == 0 {
		return -1
	}
	return 0
}

var elsewhereWriters = map[string]struct {
	writer func(w http.ResponseWriter) http.ResponseWriter
	known  bool // an empty answer is kept
}{
	"net/http's own":       {func(w http.ResponseWriter) http.ResponseWriter { return w }, true},
	"embedded":             {func(w http.ResponseWriter) http.ResponseWriter { return elsewhereEmbedding{w} }, true},
	"embedded, a pointer":  {func(w http.ResponseWriter) http.ResponseWriter { return &elsewhereEmbedding{w} }, true},
	"a writer like gin's":  {func(w http.ResponseWriter) http.ResponseWriter { return &elsewhereGin{ResponseWriter: w} }, true},
	"a writer like iris's": {func(w http.ResponseWriter) http.ResponseWriter { return &elsewhereIris{ResponseWriter: w} }, true},
	"embedded deeper":      {func(w http.ResponseWriter) http.ResponseWriter { return elsewhereInside{elsewhereEmbedding{w}} }, false},
	"of an adaptor":        {func(w http.ResponseWriter) http.ResponseWriter { return &elsewhereBuffer{w.Header(), w} }, false},
	"unwrapped to nil":     {func(w http.ResponseWriter) http.ResponseWriter { return &elsewhereNil{elsewhereBuffer{w.Header(), w}} }, false},
	"embedded, of an adaptor": {func(w http.ResponseWriter) http.ResponseWriter {
		return elsewhereEmbedding{&elsewhereBuffer{w.Header(), w}}
	}, false},
}

// elsewhereSite serves next behind the middleware, which gets the writer that wrap returns.
func elsewhereSite(t *testing.T, http2 bool, wrap func(http.ResponseWriter) http.ResponseWriter, next func(outer http.ResponseWriter) http.Handler,
) (post func() (status int, body string, replayed bool), reports *atomic.Int64) {
	t.Helper()
	reports = new(atomic.Int64)
	g := lifeGuard(t, memory.New(), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) {
		if o.Refused != nil {
			reports.Add(1)
		}
	}}))
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = wrap(w)
		idempotent(next(w)).ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = http2
	server.StartTLS()
	t.Cleanup(server.Close)
	return func() (int, string, bool) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("b"))
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", "k")
		w, err := server.Client().Do(r)
		require.NoError(t, err)
		defer w.Body.Close()
		body, err := io.ReadAll(w.Body)
		require.NoError(t, err)
		return w.StatusCode, string(body), w.Header.Get("Idempotency-Replayed") != ""
	}, reports
}

// The answer of a handler that writes nothing is kept if the writer leads to net/http's.
func TestElsewhere_anEmptyAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range elsewhereWriters {
		t.Run(name, func(t *testing.T) {
			contentProtocols(t, func(t *testing.T, http2 bool) {
				post, reports := elsewhereSite(t, http2, c.writer, func(http.ResponseWriter) http.Handler {
					return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
				})
				status, body, _ := post()
				require.Equal(t, http.StatusOK, status)
				require.Empty(t, body)
				status, _, replayed := post()
				require.Equal(t, c.known, replayed)
				require.Equal(t, c.known, reports.Load() == 0)
				if !c.known {
					require.Equal(t, http.StatusConflict, status, "it ran")
				}
			})
		})
	}
}

// A handler that answers to the writer in front, past the middleware, leaves no empty success. If
// its status can be seen, and is that of a failure, nothing is left.
func TestElsewhere_anAnswerPastTheMiddleware(t *testing.T) {
	t.Parallel()
	for name, c := range elsewhereWriters {
		for _, status := range []int{http.StatusOK, http.StatusCreated, http.StatusInternalServerError} {
			t.Run(name+" "+http.StatusText(status), func(t *testing.T) {
				contentProtocols(t, func(t *testing.T, http2 bool) {
					var runs atomic.Int64
					post, reports := elsewhereSite(t, http2, c.writer, func(outer http.ResponseWriter) http.Handler {
						return http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
							runs.Add(1)
							outer.WriteHeader(status)
							_, _ = io.WriteString(outer, "answer")
						})
					})
					got, body, _ := post()
					require.Equal(t, status, got)
					require.Equal(t, "answer", body)
					got, _, replayed := post()
					require.False(t, replayed)
					require.GreaterOrEqual(t, got, 400, "no success")
					require.Positive(t, reports.Load())
					if strings.HasPrefix(name, "a writer like") && status >= 500 {
						require.EqualValues(t, 2, runs.Load(), "a failure is not kept")
					} else {
						require.EqualValues(t, 1, runs.Load())
					}
				})
			})
		}
	}
}

// A call of gRPC that has failed has status 200, so a kept answer would be wrong.
func TestElsewhere_aCallOfGRPC(t *testing.T) {
	t.Parallel()
	for content, refused := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/GRPC-Web-Text": true, "application/json": false, "": false,
	} {
		var runs atomic.Int64
		h, seen := lifeIdempotent(t, lifeGuard(t, memory.New()), func(http.ResponseWriter, *http.Request) { runs.Add(1) })
		response := call(h, "/", "X-Tenant", "a", "Content-Type", content)
		if !refused {
			require.Equal(t, http.StatusOK, response.Code, content)
			require.EqualValues(t, 1, runs.Load(), content)
			continue
		}
		require.Equal(t, http.StatusInternalServerError, response.Code, content)
		require.Zero(t, runs.Load(), content)
		require.ErrorContains(t, seen.await(t, 1)[0].Err, "interceptor", content)
		get := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		get.Header.Set("Content-Type", content)
		h.ServeHTTP(httptest.NewRecorder(), get)
		require.EqualValues(t, 1, runs.Load(), "a request that the middleware leaves alone")
	}
}
