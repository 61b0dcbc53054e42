package sqltest

import (
	"maps"
	"testing"
)

// A Test is given a Store with an empty database of its own.
type Test func(t *testing.T, s *Store)

// Run runs the tests that need no server of their own, and others of the backend, in parallel.
func Run(t *testing.T, start func(t testing.TB) *Store, own map[string]Test) {
	t.Helper()
	tests := map[string]Test{
		"Migrate creates the table once, also if several processes call it": createsTheTable,
		"a fence is checked in the transaction of the user":                 Fences,
		"a claim that is in a batch twice has its highest fence":            claimTwiceInABatch,
		"rows that nothing needs are deleted":                               cleans,
		"releases delete old rows":                                          cleansByItself,
		"what is promised lasts for years":                                  lastsForYears,
		"one of the claims that meet on a key is granted":                   oneOfThoseThatMeet,
		"a client with one connection renews":                               oneInThePool,
		"errors have a kind":                                                errorsHaveAKind,
		"a waiter of another process is granted the key after its release": func(t *testing.T, s *Store) {
			here, _ := s.Migrated(t)
			there, _ := s.Migrated(t)
			WaiterIsServed(t, here, there)
		},
	}
	s := start(t)
	if !s.OneWriter {
		tests["transactions of the application leave a connection to renewals"] = transactionsStarveNoRenewals
	}
	if s.LockRows != "" {
		tests["a row that another transaction has locked delays no other renewal"] = lockedRows
	}
	maps.Copy(tests, own)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}
