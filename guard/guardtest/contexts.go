package guardtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func contextChecks() []check {
	return []check{
		{name: "a claim whose context has ended changes nothing", run: endedBeforeAcquire},
		{name: "a renewal whose context has ended changes nothing", run: endedBeforeRenew},
		{name: "a release whose context has ended changes nothing", run: endedBeforeRelease},
	}
}

// storeError checks that err is a complete, retryable *guard.StoreError for that operation and
// key.
func (s *subject) storeError(err error, op driver.Op, key string) {
	s.Helper()
	require.Error(s, err)
	require.ErrorIs(s, err, guard.ErrStore)
	var store *guard.StoreError
	require.ErrorAs(s, err, &store)
	require.Equal(s, op, store.Op)
	require.Equal(s, key, store.Key)
	require.NotEmpty(s, store.Backend, "the error must name the backend")
	require.NotEmpty(s, store.Kind)
	require.False(s, store.Kind.Permanent(), "kind %q is permanent, but a retry may succeed", store.Kind)
}

// withEndedContexts makes the call, for the key "key", with a cancelled and with an expired
// context. It checks the error.
func (s *subject) withEndedContexts(op driver.Op, call func(context.Context) error) {
	s.Helper()
	cancelled, cancel := context.WithCancel(s.Context())
	cancel()
	expired, cancel := context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for kind, ctx := range map[driver.StoreErrorKind]context.Context{driver.KindCanceled: cancelled, driver.KindTimeout: expired} {
		err := call(ctx)
		s.storeError(err, op, "key")
		var store *guard.StoreError
		require.ErrorAs(s, err, &store)
		require.Equal(s, kind, store.Kind)
	}
}

func endedBeforeAcquire(s *subject) {
	s.withEndedContexts(driver.OpAcquire, func(ctx context.Context) error {
		_, err := s.here.locker.TryAcquire(ctx, s.claim("key"))
		return err
	})
	s.there.mustAcquire(s.claim("key"))
}

func endedBeforeRenew(s *subject) {
	c := s.claim("key")
	fence := s.here.mustAcquire(c).Fence
	s.withEndedContexts(driver.OpRenew, func(ctx context.Context) error {
		longer := c
		longer.TTL, longer.Fence = 2*long, fence+ahead
		held, err := s.here.locker.Renew(ctx, longer)
		require.False(s, held, "held must be false if there is an error")
		return err
	})
	s.there.requireBusy(s.claim("key"), c.TTL)
	require.Equal(s, fence, s.here.mustAcquire(c).Fence)
}

func endedBeforeRelease(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	for _, after := range []driver.After{{}, {Keep: 2 * long, Done: true}} {
		s.withEndedContexts(driver.OpRelease, func(ctx context.Context) error {
			held, err := s.here.locker.Release(ctx, c, after)
			require.False(s, held, "held must be false if there is an error")
			return err
		})
		s.there.requireBusy(s.claim("key"), c.TTL)
	}
	require.True(s, s.here.renew(c))
}
