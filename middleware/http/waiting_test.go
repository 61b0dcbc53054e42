package guardhttp_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// countWaits has waits count the requests that begin to wait.
func countWaits(waits *atomic.Int64) guardhttp.Option {
	return idempotency.WithLease(guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits.Add(1) }}))
}

// awaitWaits returns when n requests have begun to wait.
func awaitWaits(t *testing.T, waits *atomic.Int64, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waits.Load() >= int64(n) }, lifeSoon, lifePoll, "%d wait", n)
	require.EqualValues(t, n, waits.Load())
}

// Row 10, also with a body that the handler would read, as net/http notices only behind it that a
// client has gone.
func TestWaiting_endsWhenTheClientLeaves(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	for name, c := range map[string]struct {
		body string
		opts []guardhttp.Option
	}{
		"small": {"b", nil}, "large": {strings.Repeat("b", 700<<10), nil}, "none": {"", nil},
		"not fingerprinted": {"b", []guardhttp.Option{guardhttp.WithFingerprint(nil)}},
		"exclusive":         {"b", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive)}},
	} {
		t.Run(name, func(t *testing.T) {
			var waits atomic.Int64
			gate := newLifeGate(t)
			h, runs := counted(gate.pass)
			key := strings.ReplaceAll(name, " ", "-")
			s := lifeServe(t, g, h, append(c.opts, idempotency.WithWait(time.Hour), countWaits(&waits))...)
			first := s.start(t.Context(), key, c.body)
			owner := gate.await(t)
			left := 0
			lifePrompt(t, 200*time.Millisecond, "leaving", func() time.Time {
				left++
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				waiting := s.start(ctx, key, c.body)
				awaitWaits(t, &waits, left)
				start := time.Now()
				leave()
				o := s.log.await(t, left)[left-1]
				require.Equal(t, idempotency.Canceled, o.Result)
				require.ErrorIs(t, o.Err, context.Canceled)
				require.False(t, o.Aborted)
				require.Error(t, lifeReceive(t, waiting, "the end of a request").err)
				return start
			})

			require.NoError(t, owner.Err(), "the owner is not disturbed")
			gate.open()
			requireRan(t, lifeReceive(t, first, "an answer"), http.StatusCreated, "run 1")
			require.EqualValues(t, 1, runs.Load())
			require.Equal(t, idempotency.Ran, s.log.await(t, left+1)[left].Result)
		})
	}
}
