package sqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Long is a TTL that does not pass during a test.
const Long = time.Minute

// Claim returns a claim of the key with an ID of its own.
func Claim(key string, ttl time.Duration) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: ttl, Label: "claimed by " + id}
}

// A Lease is a claim that was granted without a Guard, under its fence.
type Lease struct {
	driver.Claim
	Reserved int
}

// Claims returns the claim, as a lease of a Guard does.
func (l Lease) Claims() []driver.Claim { return []driver.Claim{l.Claim} }

// Under returns the lease of a claim that was granted, under a fence.
func Under(c driver.Claim, fence uint64) Lease {
	c.Fence = fence
	return Lease{Claim: c}
}

// MustAcquire makes a claim that must be granted.
func MustAcquire(t testing.TB, l driver.Locker, c driver.Claim) Lease {
	t.Helper()
	a, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, a.State)
	c.Fence = a.Fence
	return Lease{c, a.Reserved}
}

// AwaitGrant makes a claim until it is granted.
func AwaitGrant(t testing.TB, l driver.Locker, c driver.Claim) Lease {
	t.Helper()
	var a driver.Answer
	require.Eventually(t, func() (granted bool) {
		var err error
		a, err = l.TryAcquire(t.Context(), c)
		return err == nil && a.State == driver.Granted
	}, 20*time.Second, 5*time.Millisecond)
	c.Fence = a.Fence
	return Lease{c, a.Reserved}
}

// MustRelease releases a claim that must be held.
func MustRelease(t testing.TB, l driver.Locker, c driver.Claim) {
	t.Helper()
	held, err := l.Release(t.Context(), c, driver.After{})
	require.NoError(t, err)
	require.True(t, held)
}

// MustRenew renews claims, which must be held: in a batch if they are several.
func MustRenew(t testing.TB, l driver.Locker, claims ...driver.Claim) {
	t.Helper()
	if len(claims) == 1 {
		held, err := l.Renew(t.Context(), claims[0])
		require.NoError(t, err)
		require.True(t, held)
		return
	}
	driver.Await(t.Context(), l, driver.OpRenew, claims, driver.After{}, func(_ int, a driver.Answer, err error) {
		require.NoError(t, err)
		require.True(t, a.Held)
	})
}

// RequireState asserts how a claim of a key is answered that is not free.
func RequireState(t testing.TB, want driver.State, l driver.Locker, key string) {
	t.Helper()
	a, err := l.TryAcquire(Within(t, 10*time.Second), Claim(key, Long))
	require.NoError(t, err)
	require.Equal(t, want, a.State)
}

// RequireKind asserts that the store could not be asked, and why, with what the error says.
func RequireKind(t testing.TB, want driver.StoreErrorKind, err error, says ...string) {
	t.Helper()
	var store *driver.StoreError
	require.ErrorAs(t, err, &store)
	require.Equal(t, want, store.Kind, err.Error())
	for _, part := range says {
		require.ErrorContains(t, err, part)
	}
}

// Within returns a context that ends after a time.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// Exec runs a statement.
func Exec(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(Within(t, 20*time.Second), statement)
	require.NoError(t, err)
}

// Number returns the number that a statement answers.
func Number(t testing.TB, db *sql.DB, statement string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), statement).Scan(&n))
	return n
}

// Eventually waits until a statement answers a number.
func Eventually(t testing.TB, db *sql.DB, want int, statement string) {
	t.Helper()
	require.Eventually(t, func() bool {
		var n int
		return db.QueryRowContext(t.Context(), statement).Scan(&n) == nil && n == want
	}, 20*time.Second, 5*time.Millisecond)
}
