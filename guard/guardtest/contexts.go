package guardtest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func contextChecks() []check {
	return []check{
		{name: "a claim whose context is over changes nothing", run: overBeforeAcquire},
		{name: "a renewal whose context is over changes nothing", run: overBeforeRenew},
		{name: "a release whose context is over changes nothing", run: overBeforeRelease},
	}
}

// storeError checks that err tells that the store could not be asked for that.
func (s *subject) storeError(err error, op guard.Op, key string) {
	s.Helper()
	require.Error(s, err)
	require.ErrorIs(s, err, guard.ErrStore)
	var store *guard.StoreError
	require.ErrorAs(s, err, &store)
	require.Equal(s, op, store.Op)
	require.Equal(s, key, store.Key)
	require.NotEmpty(s, store.Store, "the backend's name")
	require.NotEmpty(s, store.Kind)
	require.False(s, store.Kind.Permanent(), "kind %q says that asking again cannot help", store.Kind)
}

// over calls ask, about the key "key", with contexts that have ended, and checks what it returns.
func (s *subject) over(op guard.Op, ask func(context.Context) error) {
	s.Helper()
	cancelled, cancel := context.WithCancel(s.Context())
	cancel()
	expired, cancel := context.WithDeadline(s.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for kind, ctx := range map[guard.Kind]context.Context{guard.KindCanceled: cancelled, guard.KindTimeout: expired} {
		err := ask(ctx)
		s.storeError(err, op, "key")
		var store *guard.StoreError
		require.ErrorAs(s, err, &store)
		require.Equal(s, kind, store.Kind)
	}
}

func overBeforeAcquire(s *subject) {
	s.over(guard.OpAcquire, func(ctx context.Context) error {
		_, err := s.here.locker.TryAcquire(ctx, s.claim("key"))
		return err
	})
	s.there.take(s.claim("key"))
}

func overBeforeRenew(s *subject) {
	c := s.claim("key")
	fence := s.here.take(c).Fence
	s.over(guard.OpRenew, func(ctx context.Context) error {
		longer := c
		longer.TTL, longer.Fence = 2*long, fence+ahead
		held, err := s.here.locker.Renew(ctx, longer)
		require.False(s, held, "held, with an error")
		return err
	})
	s.there.refused(s.claim("key"), c.TTL)
	require.Equal(s, fence, s.here.take(c).Fence)
}

func overBeforeRelease(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	for _, after := range []guard.After{{}, {Keep: 2 * long, Done: true}} {
		s.over(guard.OpRelease, func(ctx context.Context) error {
			held, err := s.here.locker.Release(ctx, c, after)
			require.False(s, held, "held, with an error")
			return err
		})
		s.there.refused(s.claim("key"), c.TTL)
	}
	require.True(s, s.here.renew(c))
}
