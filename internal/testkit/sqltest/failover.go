package sqltest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Replica is a server that follows another one asynchronously.
type Replica struct {
	*Store
	// Received returns when it has all that is committed.
	Received func(t testing.TB)
	// Stop has it receive nothing more.
	Stop    func(t testing.TB)
	Promote func(t testing.TB)
}

// Failover kills a primary that has granted what its replica has not received. follow starts the
// replica of the Store.
func Failover(t *testing.T, primary *Store, follow func(t testing.TB) Replica) {
	l, _ := primary.Migrated(t)
	early := MustAcquire(t, l, Claim("before", time.Hour))
	MustRelease(t, l, MustAcquire(t, l, Claim("old row", Long)).Claim)
	replica := follow(t)
	replica.Received(t)
	standby := replica.New(replica.Client(t))

	// A replica grants nothing, and answers nothing: it may be behind.
	sharing := Claim("before", Long)
	sharing.MaxHolders = 2
	for _, c := range []driver.Claim{Claim("before", Long), Claim("free", Long), sharing} {
		_, err := standby.TryAcquire(t.Context(), c)
		RequireKind(t, driver.KindReadOnly, err)
	}
	_, err := standby.Renew(t.Context(), early.Claim)
	RequireKind(t, driver.KindReadOnly, err)
	_, err = standby.Show(t.Context(), "before")
	RequireKind(t, driver.KindReadOnly, err)
	_, err = driver.Entries(t.Context(), standby, "job", 1)
	RequireKind(t, driver.KindReadOnly, err)
	_, err = standby.Raise(t.Context(), "job", "n", 0)
	RequireKind(t, driver.KindReadOnly, err)

	// What is committed from now on does not reach the replica.
	replica.Stop(t)
	lost := Claim("lost", Long)
	lost.Fences.Reserve = 100
	forgotten := []Lease{MustAcquire(t, l, lost), MustAcquire(t, l, Claim("old row", Long))}
	primary.Server.Kill(t)
	replica.Promote(t)
	time.Sleep(200 * time.Millisecond) // see "What is promised" on the pages of the stores

	MustRenew(t, standby, early.Claim) // what the replica had received is kept
	for _, old := range forgotten {
		held, err := standby.Renew(t.Context(), old.Claim)
		require.NoError(t, err)
		require.False(t, held, "the holder learns of the loss at its next renewal")
		next := MustAcquire(t, standby, Claim(old.Key, Long))
		require.Greater(t, next.Fence, old.Fence+uint64(old.Reserved), "and the fence tells the two apart")
		require.ErrorIs(t, standby.InTx(t.Context(), old, nil), replica.Stale)
	}
}
