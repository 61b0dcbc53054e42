package single_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A lonely is a Locker whose caller is alone.
type lonely struct {
	*single.Locker
	rdb    *redis.Client
	server *redistest.Server
	admin  *redis.Client
	proxy  *redistest.Proxy
}

// alone returns a Locker that has a connection for its only caller.
func alone(t *testing.T) *lonely {
	server := redistest.Start(t)
	l := &lonely{server: server, admin: server.Client(t), proxy: redistest.StartProxy(t, server.Addr())}
	l.rdb = client(t, l.proxy.Addr())
	l.Locker = single.New(l.rdb)
	require.Eventually(t, func() bool {
		before := l.rdb.PoolStats().Hits
		l.pair(t, claimOf(0))
		return l.rdb.PoolStats().Hits == before
	}, 10*time.Second, time.Millisecond)
	return l
}

func (l *lonely) connections(t *testing.T) int {
	list, err := l.admin.ClientList(t.Context()).Result()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

func (l *lonely) pair(t *testing.T, c driver.Claim) {
	require.NoError(t, take(t.Context(), l, c))
	held, err := l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
}

func TestAlone_aCallerHasAConnectionOfItsOwnThatEndsSoonAfter(t *testing.T) {
	t.Parallel()
	l := alone(t)
	with, made := l.connections(t), l.proxy.Conns()
	for start := time.Now(); time.Since(start) < time.Second; { // for longer than it stands unused
		l.pair(t, claimOf(1))
	}
	require.Less(t, l.proxy.Conns(), made+2, "it stays while it is used, unless the machine pauses")
	require.Eventually(t, func() bool { return l.connections(t) == with-1 }, 5*time.Second, 10*time.Millisecond)
	l.pair(t, claimOf(2))
	time.Sleep(50 * time.Millisecond) // for a connection that should not come
	require.Equal(t, with-1, l.connections(t), "an occasional caller needs none")
}

func TestAlone_aCallThatIsCancelledEndsAtOnceAndItsAnswerIsNotTheNextOnes(t *testing.T) {
	t.Parallel()
	l := alone(t)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	for range 5 {
		l.proxy.Delay(300 * time.Millisecond)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		var err error
		redistest.Within(t, 250*time.Millisecond, "a call that is cancelled after 50 ms", func() { _, err = l.TryAcquire(ctx, claimOf(2)) })
		var failed *guard.StoreError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, driver.KindCanceled, failed.Kind)
		l.proxy.Delay(0)
		for range 5 {
			other := claimOf(1)
			other.ID = "other"
			grant, err := l.TryAcquire(t.Context(), other)
			require.NoError(t, err)
			require.Equal(t, driver.Busy, grant.State, "it is not the answer to the call before")
			l.pair(t, claimOf(3))
		}
	}
}

func TestAlone_aCallToAFrozenServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := alone(t)
	l.server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	redistest.Within(t, 400*time.Millisecond, "a call with 200 ms", func() { require.ErrorIs(t, take(ctx, l, claimOf(1)), guard.ErrStore) })
	l.server.Thaw()
	require.Eventually(t, func() bool { return take(t.Context(), l, claimOf(1)) == nil }, 5*time.Second, 10*time.Millisecond)
}

func TestAlone_sendsForgottenScriptsAgain(t *testing.T) {
	t.Parallel()
	l := alone(t)
	for range 3 {
		require.NoError(t, l.admin.ScriptFlush(t.Context()).Err())
		l.pair(t, claimOf(1))
	}
}

func TestAlone_whatComesWhileTheCallIsOutGoesOutAfterIt(t *testing.T) {
	t.Parallel()
	l := alone(t)
	l.proxy.Delay(100 * time.Millisecond) // so that callers come while the first call is out
	before := reads(t, l.admin)
	const calls = 500
	for _, err := range all(calls, func(i int) error { return take(t.Context(), l, claimOf(i)) }) {
		require.NoError(t, err)
	}
	require.Less(t, reads(t, l.admin)-before, calls/4, "a few for each round trip, and for each new connection")
}
