package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Late renewals start another batch, unless it could only wait for the connection of the first.
func TestBatcher_lateRenewalsStartNothingThatOnlyWaits(t *testing.T) {
	t.Parallel()
	app := redistest.Start(t).Client(t, func(o *redis.Options) { o.PoolSize = 1 })
	b := newRenewer(&endpoint{})
	b.lanes = []*lane{newLane(app, renewalIdle)}
	b.queue, b.working, b.last = []*request{nil}, 1, time.Now().Add(-time.Minute)
	conn := app.Conn()
	require.NoError(t, conn.Ping(t.Context()).Err()) // the application uses its only connection
	b.late()
	require.Equal(t, 1, b.working)
	require.True(t, b.alarm.Stop(), "it looks again")
	require.NoError(t, conn.Close())
	require.False(t, b.waitsForLane())
}
