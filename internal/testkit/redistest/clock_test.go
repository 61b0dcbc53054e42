package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestStartWithClock_endsKeysByTheClockThatIsMoved(t *testing.T) {
	server, clock := redistest.StartWithClock(t, "--maxmemory", "3mb")
	client := server.Client(t)
	require.Equal(t, "3145728", client.ConfigGet(ctx, "maxmemory").Val()["maxmemory"], "it takes arguments")
	require.WithinDuration(t, time.Now(), client.Time(ctx).Val(), time.Minute)

	require.NoError(t, client.Set(ctx, "k", "v", time.Minute).Err())
	clock.Jump(2 * time.Minute)
	require.ErrorIs(t, client.Get(ctx, "k").Err(), redis.Nil, "its minute is over")
	require.WithinDuration(t, time.Now().Add(2*time.Minute), client.Time(ctx).Val(), time.Minute)

	require.NoError(t, client.Set(ctx, "k", "v", time.Minute).Err())
	clock.Jump(-time.Hour)
	left := client.PTTL(ctx, "k").Val()
	require.Greater(t, left, time.Hour, "its minute ends when the clock says so")
	require.LessOrEqual(t, left, time.Hour+time.Minute)
	require.NoError(t, client.PExpire(ctx, "k", time.Minute).Err())
	require.LessOrEqual(t, client.PTTL(ctx, "k").Val(), time.Minute)

	server.Restart()
	require.WithinDuration(t, time.Now().Add(-58*time.Minute), client.Time(ctx).Val(), time.Minute, "the clock is still off")
}

func TestStartWithClock_movesNoOtherServersClock(t *testing.T) {
	other, _ := redistest.StartWithClock(t)
	_, clock := redistest.StartWithClock(t)
	clock.Jump(time.Hour)
	require.WithinDuration(t, time.Now(), other.Client(t).Time(ctx).Val(), time.Minute)
}

func TestStartWithClock_saysThatThereIsNoCompiler(t *testing.T) {
	out, err := runOf(t, "TestStartWithClock_movesNoOtherServersClock", "CC=no-such-compiler", "ONERUN_REQUIRE_REDIS=1")
	require.Error(t, err)
	require.Contains(t, out, `ONERUN_REQUIRE_REDIS is set and exec: "no-such-compiler": executable file not found in $PATH: apt-get install gcc`)
}
