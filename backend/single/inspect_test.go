package single_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// What another program keeps under the name of a lease is shown, and left alone.
func TestInspect_leavesForeignValuesAlone(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb)
	ctx := t.Context()
	_, err := l.TryAcquire(ctx, driver.Claim{Key: "name", ID: "A", Owner: "A", TTL: time.Minute})
	require.NoError(t, err)
	names, err := rdb.Keys(ctx, "onerun:*:lease:name").Result()
	require.NoError(t, err)
	require.Len(t, names, 1)
	for _, value := range []string{"value", "", "Hello world\n", "H\n1\n", "K\n\n", "D", "Hid\nno number\n"} {
		require.NoError(t, rdb.Set(ctx, names[0], value, time.Minute).Err())
		info, err := l.Show(ctx, "name")
		require.NoError(t, err)
		require.Equal(t, driver.KeyForeign, info.State(), "%q", value)
		require.Equal(t, fmt.Sprintf("string %q", value), strings.ReplaceAll(info.Foreign, "\n", `\n`))
		for _, now := range []bool{true, false} {
			broken, err := l.Break(ctx, "name", "", driver.Break{ID: "Y", Now: now})
			require.NoError(t, err)
			require.False(t, broken)
		}
		forgotten, err := l.Forget(ctx, "name")
		require.NoError(t, err)
		require.False(t, forgotten)
		is, err := rdb.Get(ctx, names[0]).Result()
		require.NoError(t, err)
		require.Equal(t, value, is)
	}
	require.NoError(t, rdb.Del(ctx, names[0]).Err())
	require.NoError(t, rdb.LPush(ctx, names[0], "value").Err())
	info, err := l.Show(ctx, "name")
	require.NoError(t, err)
	require.Equal(t, "list", info.Foreign)
}

// A lease that PERSIST has made last forever ends a day after it was broken.
func TestInspect_aBrokenLeaseWithoutATTLEnds(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb)
	ctx := t.Context()
	_, err := l.TryAcquire(ctx, driver.Claim{Key: "name", ID: "A", Owner: "A", TTL: time.Minute})
	require.NoError(t, err)
	names, err := rdb.Keys(ctx, "onerun:*:lease:name").Result()
	require.NoError(t, err)
	require.NoError(t, rdb.Persist(ctx, names[0]).Err())
	info, err := l.Show(ctx, "name")
	require.NoError(t, err)
	require.Negative(t, info.Holders[0].Left)
	broken, err := l.Break(ctx, "name", "A", driver.Break{ID: "Y"})
	require.NoError(t, err)
	require.True(t, broken)
	info, err = l.Show(ctx, "name")
	require.NoError(t, err)
	require.InDelta(t, 24*time.Hour, info.Holders[0].Left, float64(time.Minute))
}

// The records of done markers are not carried around, only their sizes.
func TestInspect_showsTheSizeOfALongRecord(t *testing.T) {
	rdb := redistest.Start(t).Client(t)
	l := single.New(rdb)
	ctx := t.Context()
	c := driver.Claim{Key: "name", ID: "A", Owner: "A", TTL: time.Minute, Label: strings.Repeat("l", 512)}
	_, err := l.TryAcquire(ctx, c)
	require.NoError(t, err)
	record := []byte(strings.Repeat("r", 5<<20))
	held, err := l.Release(ctx, c, driver.After{Keep: time.Hour, Done: true, Record: record})
	require.NoError(t, err)
	require.True(t, held)
	info, err := l.Show(ctx, "name")
	require.NoError(t, err)
	require.Equal(t, len(record), info.Marker.Size)
	require.Equal(t, c.Label, info.Marker.Label)
}

func TestKeys_refusesTheCursorOfAnother(t *testing.T) {
	l := single.New(redistest.Start(t).Client(t))
	for _, cursor := range []string{"7", "a b", " x"} {
		_, _, err := l.Keys(t.Context(), "", cursor, 10)
		var bad *guard.SettingError
		require.ErrorAs(t, err, &bad, cursor)
		require.Equal(t, "cursor", bad.Setting)
	}
}
