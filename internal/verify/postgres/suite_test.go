package postgres_test

import (
	"testing"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	guardtest.Run(t, suite(t, ownStore(t)))
}

// Through PgBouncer in transaction mode, each statement may run in another session.
func TestWeekly_suiteThroughThePooler(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	s := store(server, server.StartPooler(t), postgres.WithListener(listenTo(server.DSN())))
	s.Freeze = nil
	guardtest.Run(t, suite(t, s))
}

// A statement of a higher isolation level fails if another one has written its row meanwhile.
func TestWeekly_suiteInSerializableTransactions(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	guardtest.Run(t, suite(t, store(server, server.DSN()+"&default_transaction_isolation=serializable")))
}

// A fleet that moves from Redis to PostgreSQL, or back, has both for a while.
func TestWeekly_suiteWhileAFleetMovesFromRedis(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	sqltest.RunMove(t, sqltest.Redis(t), suite(t, ownStore(t)))
}
