package guardasynq

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// newTestServer returns a server of so many workers, and what gives a task to one of them.
func newTestServer(t *testing.T, workers int) (s *server, task func() context.Context) {
	t.Helper()
	config := asynq.Config{Concurrency: workers}
	Configure(&config)
	s = config.BaseContext().Value(workerKey{}).(*worker).server
	s.begun = 0
	return s, config.BaseContext
}

func TestServer_hasRoomIfOneWorkerIsLeft(t *testing.T) {
	t.Parallel()
	s, task := newTestServer(t, 3)
	var leaves []func()
	for range 2 {
		ctx := task()
		_, leave := enter(ctx)
		_, inner := enter(ctx) // a middleware inside of the other
		require.True(t, s.hasRoom())
		inner()
		leaves = append(leaves, leave)
	}
	_, leave := enter(task())
	require.False(t, s.hasRoom())
	leaves[0]()
	require.True(t, s.hasRoom())
	leave()
	leaves[1]()
	require.Zero(t, s.busy)
}

// The server does not know how long those occupy their workers.
func TestServer_leavesAQuarterIfHandlersAreBehindNoMiddleware(t *testing.T) {
	t.Parallel()
	s, task := newTestServer(t, 8)
	for range 9 {
		task()
	}
	for range 6 {
		enter(task())
	}
	require.True(t, s.hasRoom())
	enter(task())
	require.False(t, s.hasRoom())
}

func TestServer_theNewestWaitMakesRoom(t *testing.T) {
	t.Parallel()
	s, task := newTestServer(t, 3)
	first, endFirst := context.WithCancel(t.Context())
	second, endSecond := context.WithCancel(t.Context())
	enter(task())
	older := s.wait(endFirst)
	enter(task())
	newer := s.wait(endSecond)
	s.makeRoom()
	require.NoError(t, second.Err(), "there is room")
	enter(task())
	s.makeRoom()
	require.ErrorIs(t, second.Err(), context.Canceled)
	require.NoError(t, first.Err())
	require.True(t, newer.end())
	require.False(t, older.end())
	s.makeRoom()
	require.NoError(t, first.Err(), "it waits no more")
	(*server)(nil).makeRoom()
}

func TestServer_holdsATaskNowAndThen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, task := newTestServer(t, 1)
		require.False(t, s.mayHold(), "there is room")
		enter(task())
		require.True(t, s.mayHold())
		require.False(t, s.mayHold())
		time.Sleep(holdInterval)
		require.True(t, s.mayHold())
	})
}

func TestServer_isIdleIfNoTaskComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, task := newTestServer(t, 2)
		enter(task())
		require.False(t, s.isIdle(), "there may be more of them")
		time.Sleep(idleAfter + time.Millisecond)
		require.True(t, s.isIdle())
		enter(task())
		time.Sleep(idleAfter + time.Millisecond)
		require.False(t, s.isIdle(), "there is no room")
	})
}
