package sqltest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Usual makes calls of each kind, with keys, labels and records that a setting of a session could
// change on their way. The other Locker is of the same store.
func Usual(t *testing.T, s *Store, other, l Locker) {
	t.Helper()
	record := make([]byte, 256)
	for b := range record {
		record[b] = byte(b)
	}
	nothing := func(*sql.Tx) error { return nil }
	for range 3 { // the first grant of a key can be another statement
		var leases []Lease
		var claims []driver.Claim
		for _, key := range []string{"a", `b'"\`, "c"} {
			c := Claim(key, Long)
			c.Label = `a\label`
			lease := MustAcquire(t, l, c)
			leases, claims = append(leases, lease), append(claims, lease.Claim)
			busy, err := other.TryAcquire(t.Context(), Claim(key, Long))
			require.NoError(t, err)
			require.Equal(t, driver.Busy, busy.State)
			require.Equal(t, c.Label, busy.Label)
			require.NoError(t, l.InTx(t.Context(), lease, nothing))
		}
		keys, _, err := l.Keys(t.Context(), "", "", 10)
		require.NoError(t, err)
		require.Subset(t, keys, []string{"a", `b'"\`, "c"})
		MustRenew(t, l, claims...)
		for _, lease := range leases {
			MustRelease(t, l, lease.Claim)
			require.ErrorIs(t, l.InTx(t.Context(), lease, nothing), s.Stale)
		}
	}
	once := MustAcquire(t, l, Claim(`once\1`, Long))
	_, err := l.Release(t.Context(), once.Claim, driver.After{Keep: time.Hour, Done: true, Record: record})
	require.NoError(t, err)
	done, err := other.TryAcquire(t.Context(), Claim(`once\1`, Long))
	require.NoError(t, err)
	require.Equal(t, driver.Done, done.State)
	require.Equal(t, record, done.Record)
	info, err := l.Show(t.Context(), `once\1`)
	require.NoError(t, err)
	require.Equal(t, driver.KeyDone, info.State())

	g, err := guard.New(l, guard.WithWait(20*time.Second))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "shared", func(context.Context) error {
		return g.Do(t.Context(), "shared", func(context.Context) error { return nil }, guard.WithLimit(2))
	}, guard.WithLimit(2)))
	require.NoError(t, g.Close(t.Context()))

	require.NoError(t, l.Append(t.Context(), "log", driver.Entry{At: 1, Record: []byte("x")}, 1))
	require.NoError(t, l.Append(t.Context(), "log", driver.Entry{At: 2, Record: record}, 1))
	entries, err := driver.Entries(t.Context(), other, "log", 5)
	require.NoError(t, err)
	require.Equal(t, []driver.Entry{{At: 2, Record: record}}, entries)
	for _, want := range []int64{0, 7} {
		was, err := l.Raise(t.Context(), "log", `c\1`, 7)
		require.NoError(t, err)
		require.Equal(t, want, was)
	}
	_, err = l.Clean(t.Context(), 10)
	require.NoError(t, err)
}
