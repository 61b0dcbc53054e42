package sqlite_test

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/sqlite"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// after leaves nothing.
var after driver.After

// Another program writes for a while. A lease lives if it lasts longer than that, and is lost if
// the other program writes for several times its TTL.
func TestLong_lockedByAnotherProgram(t *testing.T) {
	leftout.IfShort(t)
	for name, c := range map[string]struct {
		locked, ttl time.Duration
		lost        bool
	}{
		"for a fourth of the TTL": {5 * time.Second, 20 * time.Second, false},
		"for three TTLs":          {6 * time.Second, 2 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			l, _ := migrated(t, path)
			other, _ := migrated(t, path)
			g, err := guard.New(l, guard.WithTTL(c.ttl))
			require.NoError(t, err)
			first := mustAcquire(t, l, claim("freed", 10*time.Millisecond))
			err = g.Do(t.Context(), "key", func(ctx context.Context) error {
				began := time.Now()
				unlock := lock(t, open(t, path))
				requireOtherWriter(t, other, claim("new", long))
				busy, err := other.TryAcquire(within(t, 5*time.Second), claim("key", long))
				require.NoError(t, err, "a claim that is refused need not write")
				require.Equal(t, driver.Busy, busy.State)
				select {
				case <-ctx.Done():
				case <-time.After(time.Until(began.Add(c.locked))):
				}
				require.Equal(t, c.lost, ctx.Err() != nil)
				time.Sleep(time.Until(began.Add(c.locked)))
				unlock()
				return nil
			})
			require.Equal(t, c.lost, err != nil)
			if c.lost {
				require.ErrorIs(t, err, guard.ErrLost)
			}
			require.Greater(t, mustAcquire(t, other, claim("freed", long)).Fence, first.Fence)
			mustAcquire(t, other, claim("new", long))
			require.NoError(t, g.Close(t.Context()))
			mustAcquire(t, other, claim("key", long))
		})
	}
}

// A claim whose caller has left is never granted, however long the file is locked.
func TestTryAcquire_writesNothingAfterItsCallerHasLeft(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	unlock := lock(t, open(t, path))
	requireOtherWriter(t, l, claim("key", long))
	unlock()
	require.Eventually(t, func() bool { return db.Stats().InUse == 0 }, 20*time.Second, time.Millisecond)
	info, err := l.Show(t.Context(), "key")
	require.NoError(t, err)
	require.Empty(t, info.Holders)
}

// With a busy_timeout, the driver waits by itself. The error names the other writer nevertheless.
func TestTryAcquire_namesTheOtherWriterWithinABusyTimeout(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, _ := migrated(t, path+"?_pragma=busy_timeout(5000)")
	unlock := lock(t, open(t, path))
	defer unlock()
	requireOtherWriter(t, l, claim("key", long))
}

// requireOtherWriter asserts that a claim is refused because another connection writes, once the
// Locker has noticed that.
func requireOtherWriter(t *testing.T, l *sqlite.Locker, c driver.Claim) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, err := l.TryAcquire(within(t, 100*time.Millisecond), c)
		requireKind(t, driver.KindTimeout, err)
		if strings.Contains(err.Error(), "another connection has written for") {
			return
		}
		require.True(t, time.Now().Before(deadline), err)
	}
}

// A caller that leaves a locked file does not fail the one that has just come.
func TestTryAcquire_outlivesTheCallersThatLeave(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, _ := migrated(t, path)
	unlock := lock(t, open(t, path))
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Microsecond+rand.N(time.Millisecond))
				_, err := l.TryAcquire(ctx, claim(strconv.Itoa(i), long))
				cancel()
				assert.ErrorContains(t, err, "context deadline exceeded", "nobody else's error")
			}
		})
	}
	all.Wait()
	unlock()
	mustAcquire(t, l, claim("0", long))
}

// Processes that have opened the file before it was replaced do not see what the others write.
func TestFile_isDeletedOrReplaced(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(path string) error{
		"deleted":  os.Remove,
		"replaced": func(path string) error { return os.Rename(path+".copy", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := newFile(t)
			l, db := migrated(t, path)
			c := mustAcquire(t, l, claim("key", long))
			exec(t, db, `VACUUM INTO '`+path+`.copy'`)
			require.NoError(t, replace(path))
			_, err := l.TryAcquire(t.Context(), claim("new", long))
			requireKind(t, driver.KindRestarted, err, "deleted or replaced")
			_, err = l.Renew(t.Context(), c.Claim)
			requireKind(t, driver.KindRestarted, err, "deleted or replaced")
			require.Error(t, l.InTx(t.Context(), c, func(*sql.Tx) error { return nil }))
		})
	}
}

// Fences grow although the restored file has forgotten the last ones.
func TestFile_isRestoredFromABackup(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, db := migrated(t, path)
	release := func(l *sqlite.Locker, c sqltest.Lease) {
		_, err := l.Release(t.Context(), c.Claim, after)
		require.NoError(t, err)
	}
	release(l, mustAcquire(t, l, claim("known", long)))
	exec(t, db, `VACUUM INTO '`+path+`.backup'`)
	last := map[string]uint64{}
	for _, key := range []string{"known", "new"} {
		for range 10 {
			c := mustAcquire(t, l, claim(key, long))
			release(l, c)
			last[key] = c.Fence
		}
	}
	// A fence can be 131 ms ahead of the clock, and a restore takes longer.
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, db.Close())
	require.NoError(t, os.Rename(path+".backup", path))
	l, db = migrated(t, path) // a backup by VACUUM has no write-ahead log, so Migrate turns it on
	for _, key := range []string{"known", "new"} {
		require.Greater(t, mustAcquire(t, l, claim(key, long)).Fence, last[key])
	}
	require.NoError(t, db.Close())
}

// What cannot work has an error that says what to do, and the file if SQLite has opened it.
func TestErrors_sayWhatToDo(t *testing.T) {
	t.Parallel()
	// on returns a Locker on a new file, with parameters, after statements on it.
	on := func(params string, statements ...string) func(t *testing.T) sqltest.Locker {
		return func(t *testing.T) sqltest.Locker {
			path := newFile(t)
			_, db := migrated(t, path)
			require.NoError(t, db.Close()) // the last connection can change the journal mode
			db = open(t, path)
			for _, statement := range statements {
				exec(t, db, statement)
			}
			return sqlite.New(open(t, "file:"+path+params))
		}
	}
	at := func(dsn string) func(t *testing.T) sqltest.Locker {
		return func(t *testing.T) sqltest.Locker { return sqlite.New(open(t, dsn)) }
	}
	foreign := newFile(t)
	require.NoError(t, os.WriteFile(foreign, []byte(strings.Repeat("not a database\n", 100)), 0o600))
	sqltest.Refuses(t, map[string]sqltest.Refusal{
		"in memory, with several connections": sqltest.Because(driver.KindSettings, at(":memory:"), "SetMaxOpenConns(1)"),
		"shared memory":                       sqltest.Because(driver.KindSettings, at("file:shared?mode=memory&cache=shared"), "use a file"),
		"in a folder that does not exist":     sqltest.Because(driver.KindSettings, at(filepath.Join(newFile(t), "leases.db")), "in a folder that exists"),
		"another program's file":              sqltest.Because(driver.KindSettings, at(foreign), "another program's file"),
		"without a table":                     sqltest.Because(driver.KindSettings, on("", `DROP TABLE onerun_leases`), "call Migrate", "leases.db: "),
		"with an older table": sqltest.Because(driver.KindSettings,
			on("", `ALTER TABLE onerun_leases DROP COLUMN sharing`), "another version", "leases.db: "),
		"in another journal mode": sqltest.Because(driver.KindSettings,
			on("", `PRAGMA journal_mode = DELETE`), `journal mode "delete"`, "leases.db: "),
		"read-only":              sqltest.Because(driver.KindReadOnly, on("?mode=ro"), "must be writable", "leases.db: "),
		"on a disk that is full": sqltest.Because(driver.KindNotPersisted, on("?_pragma=max_page_count(8)"), "make room", "leases.db: "),
	})
}

// Migrate says it as well.
func TestMigrate_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, sqlite.New(open(t, ":memory:")).Migrate(t.Context()), "SetMaxOpenConns(1)")
	path := newFile(t)
	_, db := migrated(t, path)
	exec(t, db, `ALTER TABLE onerun_leases DROP COLUMN sharing`)
	require.ErrorContains(t, sqlite.New(db).Migrate(t.Context()), "another version")
}

func TestWarnings_namesWhatCanForget(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	l, _ := migrated(t, path)
	require.Empty(t, l.Warnings(t.Context()))
	l, _ = migrated(t, path+"?_pragma=synchronous(NORMAL)")
	sqltest.RequireWarnings(t, l, "synchronous is not FULL")
}
