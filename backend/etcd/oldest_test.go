package etcd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// Debian's server works as well, and the Guard warns of its faults.
func TestWeekly_oldestServer(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := etcdtest.StartOldest(t)
	guardtest.RunExclusion(t, suite(t, server))

	status, err := connect(t, server).Status(within(t, 20*time.Second), server.Endpoints()[0])
	require.NoError(t, err)
	client, logins := login(t, 0, server)
	l, claims := etcd.New(client), []driver.Claim{claim("a"), claim("b")}
	for _, c := range claims {
		awaitGrant(t, l, c)
	}
	before := logins.Load()
	for range 5 {
		renewAll(within(t, 20*time.Second), t, l, claims)
	}
	require.LessOrEqual(t, logins.Load()-before, int64(1))
	released, err := l.Release(within(t, 20*time.Second), claims[0], driver.After{Keep: long, Done: true, Record: []byte("record")})
	require.NoError(t, err)
	require.True(t, released)
	done, err := l.TryAcquire(within(t, 20*time.Second), claim("a"))
	require.NoError(t, err)
	require.Equal(t, "record", string(done.Record))
	if strings.HasPrefix(status.Version, "3.4.") {
		warnings := l.Warnings(within(t, 20*time.Second))
		require.Len(t, warnings, 1)
		require.ErrorContains(t, warnings[0], "has version "+status.Version+", whose leases have known faults")
	}
}
