package guardcron_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// The context of a run does not know yet that the lease has gone, as in a process that was paused.
func TestRecords_sayLostOfARunThatReturnsBeforeItsContextKnows(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	records := make(chan guardcron.Record, 100)
	procHere(t, server, func(ctx context.Context) error {
		keys, err := rdb.Keys(ctx, "*cron:job@*").Result()
		if err != nil {
			return err
		}
		return rdb.Del(ctx, keys...).Err()
	}, guardcron.WithObserver(func(r guardcron.Record) { records <- r }))
	r := receive(t, records, "the record of a run")
	require.Equal(t, guardcron.Lost, r.Result, "%+v", r)
	require.Contains(t, r.Reason, "lost")
}

// Its process dies, and a later tick begins before its lease ends. Later ticks are left out while
// the job runs, but it was not.
func TestTakeover_waitsForALaterTickThatHasBegun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace("test"))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	tick := time.Now().UTC().Truncate(time.Second).Add(2 * time.Second)
	dead, err := g.Acquire(t.Context(), "cron:job@"+tick.Format(time.RFC3339))
	require.NoError(t, err)

	begun, records := make(chan time.Time, 100), make(chan guardcron.Record, 100)
	procHere(t, server, func(ctx context.Context) error {
		at, _ := guardcron.Tick(ctx)
		begun <- at
		if at.After(tick) {
			time.Sleep(900 * time.Millisecond) // the work
		}
		return nil
	}, guardcron.WithObserver(func(r guardcron.Record) { records <- r }))
	for at := (time.Time{}); !at.After(tick); {
		at = receive(t, begun, "a later tick")
	}
	// so that the later one handles the ticks before it, which is another path
	time.Sleep(250 * time.Millisecond)
	require.NoError(t, dead.Release(t.Context()))
	for {
		r := receive(t, records, "the record of the tick")
		if r.Tick.Equal(tick) {
			require.Equal(t, guardcron.Ran, r.Result, "%+v", r)
			return
		}
	}
}

// An error of the store is not the answer that the job runs.
func TestTick_isNotLeftOutBecauseTheStoreDidNotAnswer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g, err := guard.New(single.New(server.Client(t)), guard.WithNamespace("test"))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(context.Background())) }()
	records := make(chan guardcron.Record, 100)
	rdb := server.Client(t)
	// A value that is no string is no lease: Redis returns an error.
	held, err := g.Acquire(t.Context(), "cron:job")
	require.NoError(t, err)
	keys, err := rdb.Keys(t.Context(), "*cron:job*").Result()
	require.NoError(t, err)
	require.NoError(t, held.Release(t.Context()))
	require.NotEmpty(t, keys)
	for _, key := range keys {
		require.NoError(t, rdb.Del(t.Context(), key).Err())
		require.NoError(t, rdb.LPush(t.Context(), key, "a list").Err())
	}

	procHere(t, server, func(context.Context) error { return nil }, guardcron.WithObserver(func(r guardcron.Record) { records <- r }))
	r := receive(t, records, "that the store cannot be asked")
	require.Equal(t, guardcron.Unavailable, r.Result, "%+v", r)
	require.NotEmpty(t, r.Reason)
	require.NoError(t, rdb.Del(t.Context(), keys...).Err())
	for r := receive(t, records, "a run"); r.Result != guardcron.Ran; r = receive(t, records, "a run") {
		require.NotEqual(t, guardcron.Skipped, r.Result, "%+v", r)
	}
}
