package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A lock of Redisson's is shown as a holder, and BreakNow ends it.
func TestInspect_showsAndBreaksLocksOfRedisson(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := reentrant.New(rdb)
	ctx := t.Context()
	java := redissontest.New(rdb)
	lock := java.Lock("report")
	_, _, err := lock.TryLock(ctx, 7, time.Minute)
	require.NoError(t, err)

	info, err := l.Show(ctx, "report")
	require.NoError(t, err)
	require.Equal(t, driver.KeyHeld, info.State())
	require.Len(t, info.Holders, 1)
	h := info.Holders[0]
	require.Equal(t, lock.Field(7), h.ID)
	require.True(t, h.Foreign)
	require.Zero(t, h.Fence)
	require.True(t, h.Since().IsZero())
	require.Greater(t, h.Left, 50*time.Second)
	keys, _, err := l.Keys(ctx, "rep", "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"report"}, keys)

	for _, b := range []driver.Break{{ID: "X"}, {ID: "X", Now: true}} {
		broken, err := l.Break(ctx, "report", lock.Field(8), b)
		require.NoError(t, err)
		require.False(t, broken, "another thread's")
	}
	broken, err := l.Break(ctx, "report", h.ID, driver.Break{ID: "X"})
	require.NoError(t, err)
	require.False(t, broken, "Redisson has no minimum hold")
	broken, err = l.Break(ctx, "report", h.ID, driver.Break{Now: true})
	require.NoError(t, err)
	require.True(t, broken)
	held, err := lock.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, held)
}

// node-redisson has a UUID where Redisson has the number of a thread.
func TestInspect_showsAndBreaksLocksOfAnyClientOfRedisson(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := reentrant.New(rdb)
	g, err := guard.New(l)
	require.NoError(t, err)
	const client = "285475da-9152-4c83-822a-67ee2f116a79"
	for _, thread := range []string{
		"52", "-52", "52:write", client, "worker 7", "x", "main/1", "7f:", "\xff",
	} {
		field := client + ":" + thread
		require.NoError(t, rdb.HSet(t.Context(), "report", field, 1).Err())
		require.NoError(t, rdb.PExpire(t.Context(), "report", time.Minute).Err())
		info, err := l.Show(t.Context(), "report")
		require.NoError(t, err)
		require.Empty(t, info.Foreign)
		require.Len(t, info.Holders, 1, field)
		require.Equal(t, []any{field, true}, []any{info.Holders[0].ID, info.Holders[0].Foreign})
		var busy *guard.BusyError
		err = g.Do(t.Context(), "report", func(context.Context) error { return nil })
		require.ErrorAs(t, err, &busy)
		require.Equal(t, []any{field, true}, []any{busy.Label, busy.Foreign})
		require.ErrorContains(t, err, "held by another library as ")
		broken, err := l.Break(t.Context(), "report", field, driver.Break{ID: "X", Now: true})
		require.NoError(t, err)
		require.True(t, broken, field)
	}
	require.NoError(t, g.Close(t.Context()))
}

// An application's own key is left alone, whatever it is.
func TestInspect_leavesForeignKeysAlone(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	ctx := t.Context()
	require.NoError(t, rdb.HSet(ctx, "settings", "mode", "maintenance").Err())
	require.NoError(t, rdb.HSet(ctx, "user", "name", "Ada", "age", "36").Err())
	require.NoError(t, rdb.Set(ctx, "text", "value", 0).Err())
	require.NoError(t, rdb.LPush(ctx, "list", "value").Err())
	l := reentrant.New(rdb)
	for key, want := range map[string]string{
		"settings": `hash with the field "mode"`, "user": `hash with the field "`, "text": "string", "list": "list",
	} {
		info, err := l.Show(ctx, key)
		require.NoError(t, err)
		require.Equal(t, driver.KeyForeign, info.State(), key)
		require.Contains(t, info.Foreign, want)
		for _, now := range []bool{true, false} {
			for _, id := range []string{"mode", "name", "X", "a:b"} {
				broken, err := l.Break(ctx, key, id, driver.Break{ID: "Y", Now: now})
				require.NoError(t, err)
				require.False(t, broken)
			}
		}
		forgotten, err := l.Forget(ctx, key)
		require.NoError(t, err)
		require.False(t, forgotten)
		exists, err := rdb.Exists(ctx, key).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, exists)
	}
	n, err := rdb.HLen(ctx, "user").Result()
	require.NoError(t, err)
	require.EqualValues(t, 2, n)
}

// One of an owner's holds is broken, and the others go on.
func TestInspect_breaksOneHoldOfAnOwner(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := reentrant.New(rdb)
	ctx := t.Context()
	claim := func(id, owner string) driver.Claim {
		return driver.Claim{Key: "report", ID: id, Owner: owner, TTL: time.Minute, Label: "label of " + id}
	}
	for _, id := range []string{"A", "B"} {
		g, err := l.TryAcquire(ctx, claim(id, "team"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.State)
	}
	info, err := l.Show(ctx, "report")
	require.NoError(t, err)
	require.Len(t, info.Holders, 2)
	for i, id := range []string{"A", "B"} {
		require.Equal(t, id, info.Holders[i].ID)
		require.Equal(t, "team", info.Holders[i].Owner)
		require.Equal(t, "label of "+id, info.Holders[i].Label)
	}
	broken, err := l.Break(ctx, "report", "A", driver.Break{ID: "X", Label: "broken"})
	require.NoError(t, err)
	require.True(t, broken)
	held, err := l.Renew(ctx, claim("A", "team"))
	require.NoError(t, err)
	require.False(t, held)
	held, err = l.Renew(ctx, claim("B", "team"))
	require.NoError(t, err)
	require.True(t, held)
	released, err := l.Release(ctx, claim("B", "team"), driver.After{})
	require.NoError(t, err)
	require.True(t, released)
	for _, owner := range []string{"team", "another"} {
		g, err := l.TryAcquire(ctx, claim("C", owner))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.State, "the time of the broken one is not over")
	}
}
