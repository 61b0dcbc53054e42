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
	}, settled, time.Millisecond)
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
	pauses := 0 // of the machine
	// for longer than it stands unused
	for start, last := time.Now(), time.Now(); time.Since(start) < time.Second; {
		l.pair(t, claimOf(1))
		if time.Since(last) > 200*time.Millisecond {
			pauses++
		}
		last = time.Now()
	}
	require.LessOrEqual(t, l.proxy.Conns(), made+pauses, "it stays while it is used")
	require.Eventually(t, func() bool { return l.connections(t) == with-1 }, settled, 10*time.Millisecond)
	l.pair(t, claimOf(2))
	time.Sleep(50 * time.Millisecond) // for a connection that should not come
	require.Equal(t, with-1, l.connections(t), "an occasional caller needs none")
}

func TestAlone_aCallThatIsCancelledEndsAtOnceAndItsAnswerIsNotTheNextOnes(t *testing.T) {
	t.Parallel()
	l := alone(t)
	require.NoError(t, take(t.Context(), l, claimOf(1)))
	for range 5 {
		l.proxy.HoldReplies()
		before := l.server.Calls(t)["evalsha"]
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- take(ctx, l, claimOf(2)) }()
		require.Eventually(t, func() bool { return l.server.Calls(t)["evalsha"] > before }, settled, time.Millisecond)
		cancel()
		var failed *guard.StoreError
		require.ErrorAs(t, <-ended, &failed)
		require.Equal(t, driver.KindCanceled, failed.Kind)
		l.proxy.ReleaseReplies()
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
	redistest.Within(t, 2*time.Second, "a call with 200 ms", func() { require.ErrorIs(t, take(ctx, l, claimOf(1)), guard.ErrStore) })
	l.server.Thaw()
	require.Eventually(t, func() bool { return take(t.Context(), l, claimOf(1)) == nil }, settled, 10*time.Millisecond)
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
