package backend_test

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
)

// A closer is a Locker that counts how often it was closed.
type closer struct {
	*memory.Locker
	closed int
	err    error
}

func (c *closer) Close() error { c.closed++; return c.err }

// A Locker that consists of others closes each of them that has Close, and reports each error.
func TestClose_reachesAllLockersInside(t *testing.T) {
	for name, of := range map[string]func(all []guard.Locker) io.Closer{
		"redlock": func(all []guard.Locker) io.Closer { return redlock.New(all) },
		"both":    func(all []guard.Locker) io.Closer { return both.New(all[0], all[1]) },
		"nested":  func(all []guard.Locker) io.Closer { return both.New(redlock.New(all[:3]), all[3]) },
	} {
		t.Run(name, func(t *testing.T) {
			first, second, third := errors.New("first"), errors.New("second"), &closer{Locker: memory.New()}
			failing := []*closer{{memory.New(), 0, first}, {memory.New(), 0, second}}
			l := of([]guard.Locker{failing[0], failing[1], third, memory.New()})
			err := l.Close()
			require.ErrorIs(t, err, first)
			require.ErrorIs(t, err, second)
			require.Equal(t, []int{1, 1}, []int{failing[0].closed, failing[1].closed})
			require.Equal(t, name != "both", third.closed == 1)
		})
	}
}
