package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// outageTTL is that of the leases in virtual time.
const outageTTL = 30 * time.Second

// An outageSite is a handler behind the middleware over a store whose answers a test specifies, in
// virtual time.
type outageSite struct {
	guardtest.Scripted
	handler http.Handler
	runs    atomic.Int64
	// handle is the handler, or nil for one that answers with the number of its run.
	handle func(w http.ResponseWriter, r *http.Request, run int64)
	seen   outcomeLog
}

// inOutage runs f in a bubble. The bubble fails if f leaves a goroutine behind.
func inOutage(t *testing.T, f func(t *testing.T, s *outageSite), opts ...guardhttp.Option) {
	t.Helper()
	inOutageWith(t, nil, f, opts...)
}

// inOutageWith is inOutage with a KeyFunc. nil is IdempotencyKey.
func inOutageWith(t *testing.T, key guardhttp.KeyFunc, f func(t *testing.T, s *outageSite), opts ...guardhttp.Option) {
	t.Helper()
	if key == nil {
		key = guardhttp.IdempotencyKey
	}
	synctest.Test(t, func(t *testing.T) {
		s := &outageSite{Scripted: guardtest.Scripted{Inner: memory.New()}}
		g, err := guard.New(s, guard.WithTTL(outageTTL), guard.WithNamespace("test"))
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		opts = append(opts, idempotency.WithGlobalKeys(), idempotency.WithObserver(s.seen.observer()))
		idempotent, err := guardhttp.New(g, key, opts...)
		require.NoError(t, err)
		s.handler = idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			run := s.runs.Add(1)
			if s.handle != nil {
				s.handle(w, r, run)
				return
			}
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "run ", run)
		}))
		f(t, s)
	})
}
