package main

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// requireBalances fails unless the accounts have these balances, read without the program's code.
func requireBalances(t *testing.T, dsn string, alice, bob int) {
	t.Helper()
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	defer db.Close()
	for owner, want := range map[string]int{"alice": alice, "bob": bob} {
		var balance int
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT balance FROM accounts WHERE owner = $1`, owner).Scan(&balance))
		require.Equal(t, want, balance, owner)
	}
}

// Two processes that move money at the same time do so one after the other.
func TestMove_theSecondWaitsForTheFirst(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Start(t).DSN()
	first := programtest.Start(t, "-db", dsn, "-move", "alice,bob,10")
	first.Says("alice has 100")
	second := programtest.Start(t, "-db", dsn, "-move", "bob,alice,30")
	first.Tell("")
	first.Ends()
	second.Says("bob has 110")
	second.Tell("")
	second.Ends()
	requireBalances(t, dsn, 120, 80)
}

// A process that is paused for longer than its TTL commits nothing.
func TestMove_aPausedProcessIsRolledBack(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Start(t).DSN()
	paused := programtest.Start(t, "-db", dsn, "-move", "alice,bob,10")
	paused.Says("alice has 100")
	require.NoError(t, paused.Freeze())
	other := programtest.Start(t, "-db", dsn, "-move", "alice,bob,30")
	other.Says("alice has 100") // after the TTL
	other.Tell("")
	other.Ends()
	paused.Tell("")
	require.NoError(t, paused.Thaw())
	paused.Says("rolled back")
	require.Error(t, paused.Wait())
	requireBalances(t, dsn, 70, 130)
}
