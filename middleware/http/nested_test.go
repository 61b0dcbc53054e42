package guardhttp_test

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// onePerUser lets one request of a user run at a time.
func onePerUser(t *testing.T, g *guard.Guard) func(http.Handler) http.Handler {
	t.Helper()
	m, err := guardhttp.New(g, guardhttp.FromHeader("X-User"), idempotency.WithGlobalKeys(), idempotency.WithGroup("user"),
		idempotency.WithMode(idempotency.Exclusive))
	require.NoError(t, err)
	return m
}

// A refusal by the inner middleware that says when to try again is not final for the outer one.
func TestNested_aPassingRefusalIsNotKept(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guardhttp.Option{"default": nil, "policy": {guardhttp.WithPolicy(keepAll)}} {
		t.Run(name, func(t *testing.T) {
			g := lifeGuard(t, memory.New())
			gate := newLifeGate(t)
			h, runs := counted(gate.pass)
			s := lifeServe(t, g, onePerUser(t, g)(h).ServeHTTP, opts...)
			first := s.start(t.Context(), "k1", "b", "X-User", "u")
			gate.await(t)
			requireProblem(t, s.post(t, "k2", "b", "X-User", "u"), http.StatusConflict, idempotency.InFlight)
			gate.open()
			requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
			requireRan(t, s.post(t, "k2", "b", "X-User", "u"), http.StatusCreated, "run 2")
			requireReplay(t, s.post(t, "k2", "b", "X-User", "u"), http.StatusCreated, "run 2")
			require.EqualValues(t, 2, runs.Load())
		})
	}
}

// A refusal that stays the same is as final as an answer.
func TestNested_aFinalRefusalIsKept(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	h, runs := counted(nil)
	s := lifeServe(t, g, onePerUser(t, g)(h).ServeHTTP)
	first := s.post(t, "k", "b")
	requireProblem(t, first, http.StatusBadRequest, idempotency.KeyMissing)
	requireReplay(t, s.post(t, "k", "b", "X-User", "u"), http.StatusBadRequest, first.body)
	require.Zero(t, runs.Load())
}

func TestNested_setKeepReachesAllMiddlewares(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]guardhttp.Option{"lease": nil, "no lease": {idempotency.WithFailOpen()}} {
		t.Run(name, func(t *testing.T) {
			store := guard.Locker(memory.New())
			if opts != nil {
				store = lifeAway{store}
			}
			inner, _ := lifeIdempotent(t, lifeGuard(t, store), func(w http.ResponseWriter, r *http.Request) {
				require.True(t, idempotency.SetKeep(r.Context(), idempotency.KeepNothing))
			}, opts...)
			s := lifeServe(t, lifeGuard(t, memory.New()), inner.ServeHTTP)
			for range 2 {
				require.False(t, s.post(t, "k", "b").replayed())
			}
		})
	}
}

// A gateway does not keep what the middleware of the service behind it answers for a while.
func TestNested_aGatewayDoesNotKeepAPassingRefusal(t *testing.T) {
	t.Parallel()
	gate := newLifeGate(t)
	h, runs := counted(gate.pass)
	service := lifeServe(t, lifeGuard(t, memory.New()), h)
	to, err := url.Parse(service.URL)
	require.NoError(t, err)
	gateway := lifeServe(t, lifeGuard(t, memory.New()), httputil.NewSingleHostReverseProxy(to).ServeHTTP)
	first := service.start(t.Context(), "k", "b") // as if the gateway had not waited for its answer
	gate.await(t)
	requireProblem(t, gateway.post(t, "k", "b"), http.StatusConflict, idempotency.InFlight)
	gate.open()
	requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
	requireReplay(t, gateway.post(t, "k", "b"), http.StatusCreated, "run 1")
	require.EqualValues(t, 1, runs.Load())
}

// KeepFinal is narrow: a handler's own answers count, even with a Retry-After header.
func TestKeepFinal_keepsTheHandlersOwnConflict(t *testing.T) {
	t.Parallel()
	own := http.Header{"Retry-After": {"1"}, "Content-Type": {"application/problem+json"}}
	require.True(t, guardhttp.KeepFinal(http.StatusConflict, own))
	var runs atomic.Int64
	s := lifeServe(t, lifeGuard(t, memory.New()), func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusConflict)
	})
	for range 2 {
		require.Equal(t, http.StatusConflict, s.post(t, "k", "b").status)
	}
	require.EqualValues(t, 1, runs.Load())
}
