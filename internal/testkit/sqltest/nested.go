package sqltest

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func joins(s *shop) {
	g := s.newGuard()
	require.NoError(s, g.Do(s.Context(), "nested 2", func(outer context.Context) error {
		require.NoError(s, s.inTx(outer))
		require.NoError(s, g.DoAll(outer, []string{"nested 1", "nested 2", "nested 3"}, func(ctx context.Context) error {
			require.NoError(s, s.inTx(outer))
			require.NoError(s, s.inTx(ctx))
			lease, _ := guard.FromContext(ctx)
			require.Len(s, lease.Claims(), 3)
			return nil
		}))
		return s.inTx(outer)
	}))
	s.sold(4)
}

// A losing Locker loses the next renewal of a key, or the answer to it.
type losing struct {
	Locker
	key        string
	lost, late atomic.Bool // the renewal, or its answer
}

func (l *losing) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	switch {
	case c.Key == l.key && l.lost.Swap(false):
		return false, errors.New("lost")
	case c.Key == l.key && l.late.Swap(false):
		_, err := l.Locker.Renew(ctx, c)
		return false, cmp.Or(err, errors.New("no answer"))
	}
	return l.Locker.Renew(ctx, c)
}

func (l *losing) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	driver.Each{Locker: l}.Start(ctx, op, claims, after, done)
}

// A DoAll inside of a run that holds one of its keys raises the fence of that key first.
func failsAround(s *shop) {
	MustAcquire(s, s.there, Claim("busy", Long))
	for name, c := range map[string]struct {
		cancelAt   int32 // the hook AcquireEnd of which key ends the call, if any
		lost, late bool  // see losing
		keys       []string
		err        error // of the function
	}{
		"cancelled after its first key": {cancelAt: 1},
		"cancelled after its last key":  {cancelAt: 2},
		"the renewal is lost":           {lost: true},
		"the answer is lost":            {late: true},
		"a key is busy":                 {keys: []string{"busy"}},
		"its function fails":            {err: errors.New("failed")},
	} {
		s.Run(name, func(t *testing.T) {
			keys := append([]string{name + " 1", name + " 2", name + " 3"}, c.keys...)
			l := &losing{Locker: s.here, key: keys[1]}
			l.lost.Store(c.lost)
			l.late.Store(c.late)
			g, err := guard.New(l)
			require.NoError(t, err)
			defer func() { require.NoError(t, g.Close(context.Background())) }()
			var last uint64
			require.NoError(t, g.Do(t.Context(), keys[1], func(outer context.Context) error {
				ctx, cancel := context.WithCancel(outer)
				defer cancel()
				var ends atomic.Int32
				hook := guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) {
					if ends.Add(1) == c.cancelAt {
						cancel()
					}
				}}
				require.Error(t, g.DoAll(ctx, keys, func(context.Context) error { return c.err }, guard.WithHook(hook)))
				lease, _ := guard.FromContext(outer)
				require.True(t, lease.Valid())
				require.NoError(t, s.here.InTx(t.Context(), lease, func(*sql.Tx) error { return nil }))
				tx, err := s.db.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				defer tx.Rollback()
				require.NoError(t, s.here.CheckFence(t.Context(), tx, lease))
				last = lease.Fence()
				return nil
			}))
			require.NoError(t, g.Do(t.Context(), keys[1], func(ctx context.Context) error {
				require.Greater(t, guard.Fence(ctx), last)
				return nil
			}))
		})
	}
}
