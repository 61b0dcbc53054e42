package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

// The fences of two holders of the stock. The newer holder has the larger one.
const older, newer = 7, 8

// newDatabase returns a database with a full stock.
func newDatabase(t *testing.T) database {
	t.Helper()
	db := database{stage.OpenDatabase(filepath.Join(t.TempDir(), "shop.db"))}
	require.NoError(t, db.Update(t.Context(), func(tx *bbolt.Tx) error {
		for _, bucket := range []string{bucketStock, bucketClaims, bucketRefused} {
			if _, err := tx.CreateBucket([]byte(bucket)); err != nil {
				return err
			}
		}
		return nil
	}))
	require.NoError(t, db.fill(t.Context(), coupons))
	return db
}

// requireRead reads the stock under the fence and returns what is left.
func requireRead(t *testing.T, db database, user string, fence uint64) int {
	t.Helper()
	remaining, err := db.read(t.Context(), user, fence)
	require.NoError(t, err)
	return remaining
}

// sell writes what is left after a sale to the user.
func sell(t *testing.T, db database, user string, left int, fence uint64) error {
	t.Helper()
	return db.write(t.Context(), sale{
		order: order{user: user, size: "M"}, server: "server 1", remaining: left, fence: fence,
	})
}

// requireBooks returns all that the database has.
func requireBooks(t *testing.T, db database) books {
	t.Helper()
	b, err := db.books(t.Context())
	require.NoError(t, err)
	return b
}

// requireStock fails unless so many coupons are left, and as many were sold as are missing.
func requireStock(t *testing.T, db database, left int) {
	t.Helper()
	b := requireBooks(t, db)
	require.Equal(t, left, b.stock.Remaining)
	require.Len(t, b.claims, coupons-left, "coupons sold")
}

func TestRead_registersTheFenceSoThatNoSaleIsLost(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	first := requireRead(t, db, "alice", older) // then its server is frozen
	second := requireRead(t, db, "bob", newer)
	require.Equal(t, first, second)
	require.ErrorIs(t, sell(t, db, "alice", first-1, older), errStale)
	require.NoError(t, sell(t, db, "bob", second-1, newer))
	requireStock(t, db, 99)
	require.Equal(t, []refusal{{"alice", "server 1", older, newer}}, requireBooks(t, db).refused)
}

// This is why read registers the fence. The schedule is the same, but only the writes compare.
func TestRead_thatDoesNotRegisterTheFenceLosesASale(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	read := func() int { return requireBooks(t, db).stock.Remaining }
	write := func(left int, fence uint64) error {
		return db.Update(t.Context(), func(tx *bbolt.Tx) error {
			s, err := stage.Get[stock](tx, bucketStock, coupon)
			if err != nil {
				return err
			}
			if s.Fence > fence {
				return errStale
			}
			return stage.Put(tx, bucketStock, coupon, stock{left, fence})
		})
	}
	first, second := read(), read()
	require.NoError(t, write(first-1, older), "no newer holder has written yet")
	require.NoError(t, write(second-1, newer))
	require.Equal(t, 99, read(), "after two sales")
}

func TestRead_refusesAStaleHolder(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	requireRead(t, db, "bob", newer)
	_, err := db.read(t.Context(), "alice", older)
	require.ErrorIs(t, err, errStale)
	require.NoError(t, sell(t, db, "bob", 99, newer), "the stale read changes nothing")
	requireStock(t, db, 99)
}

func TestRead_andWriteWorkSeveralTimesUnderOneFence(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	for _, user := range []string{"alice", "bob", "carol"} {
		left := requireRead(t, db, user, newer)
		require.Equal(t, left, requireRead(t, db, user, newer))
		require.NoError(t, sell(t, db, user, left-1, newer))
	}
	requireStock(t, db, 97)
	_, err := db.read(t.Context(), "bob", newer)
	require.ErrorIs(t, err, errHasOne)
}

func TestWrite_refusesAFenceThatNoReadHasRegistered(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	left := requireRead(t, db, "alice", older)
	require.ErrorIs(t, sell(t, db, "bob", left-1, newer), errStale)
	require.NoError(t, sell(t, db, "alice", left-1, older))
	requireStock(t, db, 99)
}

func TestStock_registersNoFence(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	left := requireRead(t, db, "alice", older)
	remaining, fence, err := db.stock(t.Context())
	require.NoError(t, err)
	require.Equal(t, left, remaining)
	require.EqualValues(t, older, fence)
	require.NoError(t, sell(t, db, "alice", left-1, older), "a look at the stock refuses nobody")
	_, fence, err = db.stock(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, older, fence)
}
