package sqltest

import (
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Suite returns what guardtest needs to know, for two clients of the database, or one twice.
func (s *Store) Suite(t testing.TB, here, there *sql.DB) guardtest.Backend {
	t.Helper()
	require.NoError(t, s.New(here).Migrate(t.Context()))
	flush := func(t testing.TB) { s.flush(t, here, there) }
	b := guardtest.Backend{
		New:   func(t testing.TB) guard.Locker { flush(t); return s.New(here) },
		Again: func(testing.TB, guard.Locker) guard.Locker { return s.New(there) },
		Flush: flush,
		// A round trip or a write to the disk takes long beside a millisecond.
		MinTTL: 20 * time.Millisecond,
		Ledger: true, Inspects: true, Notifies: true,
		Shares: []int{2, 3, driver.Unlimited},
		Keys:   append([]string{"onerun_leases", "{k}", "{k}:fence"}, s.Keys...),
	}
	if s.Freeze != nil {
		b.Freeze = func(t testing.TB) func() { return s.Freeze(t, here, there) }
	}
	return b
}

// flush deletes all rows when the clients have ended their calls, and the server what it was asked:
// after a freeze, the last statements arrive late.
func (s *Store) flush(t testing.TB, clients ...*sql.DB) {
	t.Helper()
	require.Eventually(t, func() bool {
		connections := 0
		for _, db := range clients {
			stats := db.Stats()
			if stats.InUse > 0 {
				return false
			}
			connections += stats.OpenConnections
		}
		if s.Idle != nil && !s.Idle(clients[0], connections) {
			return false
		}
		_, err := clients[0].ExecContext(t.Context(), s.Empty)
		return err == nil
	}, 20*time.Second, time.Millisecond)
}

// Frozen returns Store.Freeze for a server.
func Frozen(server Server) func(t testing.TB, _ ...*sql.DB) (thaw func()) {
	return func(t testing.TB, _ ...*sql.DB) func() { server.Freeze(t); return server.Thaw }
}

// RunMove runs the suite on a fleet that moves from one store to another, and has both for a while.
func RunMove(t *testing.T, from, to guardtest.Backend) {
	t.Helper()
	guardtest.Run(t, guardtest.Backend{
		New: func(t testing.TB) guard.Locker { return both.New(from.New(t), to.New(t)) },
		Again: func(t testing.TB, _ guard.Locker) guard.Locker {
			return both.New(from.Again(t, nil), to.Again(t, nil))
		},
		Flush:  func(t testing.TB) { from.Flush(t); to.Flush(t) },
		MinTTL: 250 * time.Millisecond, // a claim takes several calls, and a server may be slow
		Ledger: true, Notifies: true, Keys: to.Keys,
	})
}

// Redis starts a Redis from which a fleet moves.
func Redis(t testing.TB) guardtest.Backend {
	t.Helper()
	server := redistest.Start(t)
	rdb := [2]*redis.Client{server.Client(t), server.Client(t)}
	flush := func(t testing.TB) { require.NoError(t, rdb[0].FlushAll(t.Context()).Err()) }
	return guardtest.Backend{
		New:   func(t testing.TB) guard.Locker { flush(t); return single.New(rdb[0]) },
		Again: func(testing.TB, guard.Locker) guard.Locker { return single.New(rdb[1]) },
		Flush: flush,
	}
}
