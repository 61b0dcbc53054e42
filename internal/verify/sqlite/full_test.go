package sqlite_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A write that finds no room fails alone, although calls that wait are written together: leases are
// renewed and released on a full disk, as long as that needs no room.
func TestFull_failsOnlyWhatNeedsRoom(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	_, db := migrated(t, path)
	l, _ := migrated(t, path+fmt.Sprintf("?_pragma=max_page_count(%d)", pages(t, db)))
	renewed, released, large := claim("renewed", long), claim("released", long), claim("large", long)
	for _, c := range []driver.Claim{renewed, released, large} {
		mustAcquire(t, l, c)
	}
	unlock := lock(t, open(t, path))
	errs := make(chan error, 3)
	for i, call := range []func() (bool, error){
		func() (bool, error) { return l.Release(t.Context(), released, driver.After{}) },
		func() (bool, error) {
			_, err := l.Release(t.Context(), large, driver.After{Keep: time.Hour, Done: true, Record: make([]byte, driver.MaxRecord)})
			return true, err
		},
		func() (bool, error) { return l.Renew(t.Context(), renewed) },
	} {
		go func() {
			held, err := call()
			if err == nil && !held {
				err = fmt.Errorf("call %d: not held", i)
			}
			errs <- err
		}()
		time.Sleep(50 * time.Millisecond) // so that they come in this order
	}
	unlock()
	var failed []error
	for range 3 {
		if err := <-errs; err != nil {
			failed = append(failed, err)
		}
	}
	require.Len(t, failed, 1)
	requireKind(t, driver.KindNotPersisted, failed[0], "large")
}

func pages(t testing.TB, db *sql.DB) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), `PRAGMA page_count`).Scan(&n))
	return n
}
