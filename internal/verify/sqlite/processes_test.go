package sqlite_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// openMember opens a process that uses the file. Those of the kind "driver" also have the driver
// wait for other writers, as an application does.
func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	dsn := role.Addrs[0]
	if role.Kind == "driver" {
		dsn += "?_pragma=busy_timeout(5000)"
	}
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	l := sqlite.New(db)
	if err := l.Migrate(context.Background()); err != nil { // all members do, at the same time
		return nil, err
	}
	return fleettest.By(l)
}

// Real processes want one key of a new file, and some of them are killed while they hold it.
func TestFleet_processesExcludeEachOther(t *testing.T) {
	t.Parallel()
	f := fleettest.New(t, memberEnv)
	kills := f.Roll([]string{"plain", "driver"}, 500*time.Millisecond, newFile(t))
	runs := f.Check()
	t.Logf("%v runs, %d kills", runs, kills)
	require.Positive(t, runs["plain"])
	require.Positive(t, runs["driver"])
}

// Waiters notice soon what another process writes, and another Locker of their own.
func TestSubscribe_noticesWhatAnotherConnectionWrites(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	other, _ := migrated(t, path)
	again := sqlite.New(db) // mostly, by the same connection
	for name, waiting := range map[string]*sqlite.Locker{"another pool": other, "another Locker": again} {
		woken := make(chan time.Time, 1000)
		c := mustAcquire(t, l, claim("key", long))
		stop := waiting.Subscribe("key", "", func(time.Duration) { woken <- time.Now() })
		<-woken
		fastest := time.Hour // a machine may stall
		for range 5 {
			time.Sleep(50 * time.Millisecond) // it has looked at the key
			for len(woken) > 0 {
				<-woken
			}
			released := time.Now()
			sqltest.MustRelease(t, l, c.Claim)
			fastest = min(fastest, (<-woken).Sub(released))
			c = mustAcquire(t, l, claim("key", long))
		}
		stop()
		sqltest.MustRelease(t, l, c.Claim)
		// The look that does not depend on the file comes 950 ms after each release.
		require.Less(t, fastest, 500*time.Millisecond, name)
	}
}
