package failover_test

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	// roundsEnv has the number of rounds of the long form, which prints the table.
	roundsEnv = "ONERUN_FAILOVER"
	// markdownEnv has the run write the table into the page.
	markdownEnv = "ONERUN_FAILOVER_MD"
	shortRounds = 3
)

// The short form shows that a lease that is forgotten is seen, and that some stores forget none.
func TestFailover_forgetsWhereItMust(t *testing.T) {
	t.Parallel()
	if os.Getenv(roundsEnv) != "" {
		return // the long form has these as well
	}
	for _, s := range stores {
		if s.short {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				s.check(t, rounds(t, s.start, shortRounds))
			})
		}
	}
}

// check asserts what has to hold.
func (s store) check(t testing.TB, found result) {
	t.Helper()
	t.Logf("%+v", found)
	if s.none {
		require.Zero(t, found.forgotten, "a second holder while the first one's lease was valid")
	}
	if s.all {
		require.Equal(t, found.rounds, found.forgotten, "it forgets all, and the judge has to see it")
	}
}

// The long form makes the table. Its stores run side by side: they wait most of the time.
func TestFailover_table(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv(roundsEnv))
	if n == 0 {
		return // only the long form has a table
	}
	var mu sync.Mutex
	found := make([]result, len(stores))
	t.Run("stores", func(t *testing.T) {
		for i, s := range stores {
			lanes := min(s.lanes, n)
			for lane := range lanes {
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					one := rounds(t, s.start, (n+lane)/lanes)
					s.check(t, one)
					mu.Lock()
					defer mu.Unlock()
					found[i].add(one)
				})
			}
		}
	})
	report(t, found)
}
