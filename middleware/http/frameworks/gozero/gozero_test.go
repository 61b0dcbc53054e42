// Package gozero_test puts guardhttp behind a server of go-zero. It is a module of its own, outside
// of the workspace: go-zero needs some 220 packages. The race detector finds that go-zero's log
// reads the body while a handler that outlasts the timeout still does.
package gozero_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/zeromicro/go-zero/core/conf"
	"github.com/zeromicro/go-zero/core/logx"
	"github.com/zeromicro/go-zero/rest"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

const (
	timeout = 500 * time.Millisecond // of go-zero, around all handlers
	receipt = `{"claim":1}`
)

// A shop is a server of go-zero with all of its own middlewares.
type shop struct {
	url   string
	runs  atomic.Int64
	after chan struct{} // slow handlers go on
	ended chan idempotency.Outcome
}

func newShop(t *testing.T) *shop {
	t.Helper()
	logx.Disable()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	s := &shop{after: make(chan struct{}), ended: make(chan idempotency.Outcome, 10)}
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(),
		idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { s.ended <- o }))
	require.NoError(t, err)

	var c rest.RestConf
	require.NoError(t, conf.FillDefault(&c))
	c.Timeout = timeout.Milliseconds()
	server, err := rest.NewServer(c)
	require.NoError(t, err)
	server.Use(rest.ToMiddleware(idempotent))
	for _, path := range []string{"/created", "/error", "/panic", "/slow"} {
		server.AddRoute(rest.Route{Method: http.MethodPost, Path: path, Handler: s.handle})
	}
	handler, err := rest.NewServerless(server)
	require.NoError(t, err)
	listening := httptest.NewServer(http.HandlerFunc(handler.Serve))
	t.Cleanup(listening.Close)
	s.url = listening.URL
	return s
}

func (s *shop) handle(w http.ResponseWriter, r *http.Request) {
	run := s.runs.Add(1)
	switch r.URL.Path {
	case "/error":
		http.Error(w, "the handler has failed", http.StatusInternalServerError)
		return
	case "/panic":
		if run == 1 {
			panic("the handler has panicked")
		}
	case "/slow":
		<-s.after
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, receipt)
}

// A reply is what a client got.
type reply struct {
	status   int
	body     string
	replayed bool
}

func (s *shop) post(t *testing.T, path, body string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	r.Header.Set("Idempotency-Key", "k")
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return reply{response.StatusCode, string(text), response.Header.Get("Idempotency-Replayed") == "true"}
}

// end waits until the middleware has returned.
func (s *shop) end(t *testing.T) {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(20 * time.Second):
		require.Fail(t, "the middleware has not returned")
	}
}

func TestGoZero_replaysAnAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Equal(t, reply{http.StatusCreated, receipt, false}, s.post(t, "/created", "body"))
	s.end(t)
	require.Equal(t, reply{http.StatusCreated, receipt, true}, s.post(t, "/created", "body"))
	require.Equal(t, http.StatusUnprocessableEntity, s.post(t, "/created", "another body").status)
	require.EqualValues(t, 1, s.runs.Load())
}

func TestGoZero_runsAgainAfterAFailure(t *testing.T) {
	t.Parallel()
	for path, second := range map[string]int{"/error": http.StatusInternalServerError, "/panic": http.StatusCreated} {
		s := newShop(t)
		require.Equal(t, http.StatusInternalServerError, s.post(t, path, "body").status, path)
		s.end(t)
		answer := s.post(t, path, "body")
		require.Equal(t, second, answer.status, path)
		require.False(t, answer.replayed, path)
		require.EqualValues(t, 2, s.runs.Load(), path)
	}
}

// go-zero answers 503 when its timeout is over. The handler runs on under its lease, and a retry
// gets its answer.
func TestGoZero_aHandlerThatOutlastsTheTimeoutRunsOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	require.Equal(t, http.StatusServiceUnavailable, s.post(t, "/slow", "body").status)
	require.Equal(t, http.StatusConflict, s.post(t, "/slow", "body").status, "the first run goes on")
	s.end(t)
	close(s.after)
	s.end(t)
	require.Equal(t, reply{http.StatusCreated, receipt, true}, s.post(t, "/slow", "body"))
	require.EqualValues(t, 1, s.runs.Load())
}
