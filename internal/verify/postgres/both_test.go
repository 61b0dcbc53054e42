package postgres_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// memberEnv makes the test binary a member of a fleet: it holds the role.
const memberEnv = "ONERUN_POSTGRES_MEMBER"

// openMember opens a member, whose kind is the stage of the move.
func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	db, err := sql.Open("pgx", role.Addrs[1])
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	from := single.New(redis.NewClient(&redis.Options{Addr: role.Addrs[0]}))
	to := postgres.New(db)
	lockers := map[string]guard.Locker{"old": from, "both": both.New(from, to), "next": to}
	return fleettest.By(lockers[role.Kind])
}

// Six processes move from Redis to PostgreSQL and back, under load, and some are killed. No two
// hold the lock at the same time, and fences grow across the stages.
func TestLong_aFleetMovesFromRedisAndBackWithoutAGap(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	to := postgrestest.Start(t)
	migrated(t, to.DSN())
	f := fleettest.New(t, memberEnv)
	kills := f.Roll([]string{"old", "both", "next", "both", "old"}, time.Second, redistest.Start(t).Addr(), to.DSN())
	t.Logf("%d kills: %v", kills, f.Check())
}
