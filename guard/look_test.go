package guard_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// Look and a call that does not wait agree, whatever the key is.
func TestLook_saysWhetherACallWouldFindTheKeyBusy(t *testing.T) {
	hold := func(g *guard.Guard, opts ...guard.Option) *guard.Lease {
		lease, err := g.Acquire(context.Background(), "key", opts...)
		if err != nil {
			panic(err)
		}
		return lease
	}
	for name, c := range map[string]struct {
		is   func(g *guard.Guard)
		opts []guard.Option
		busy bool
		left time.Duration
	}{
		"free":                       {is: func(*guard.Guard) {}},
		"held":                       {is: func(g *guard.Guard) { hold(g) }, busy: true, left: 30 * time.Second},
		"one of two":                 {is: func(g *guard.Guard) { hold(g, guard.WithLimit(2)) }, opts: []guard.Option{guard.WithLimit(2)}},
		"one of two, alone":          {is: func(g *guard.Guard) { hold(g, guard.WithLimit(2)) }, busy: true, left: 30 * time.Second},
		"held alone, for one of two": {is: func(g *guard.Guard) { hold(g) }, opts: []guard.Option{guard.WithLimit(2)}, busy: true, left: 30 * time.Second},
		"two of two": {is: func(g *guard.Guard) {
			hold(g, guard.WithLimit(2))
			hold(g, guard.WithLimit(3), guard.WithTTL(time.Minute))
		}, opts: []guard.Option{guard.WithLimit(2)}, busy: true, left: 30 * time.Second},
		"read, by a reader":            {is: func(g *guard.Guard) { hold(g, guard.WithShared()) }, opts: []guard.Option{guard.WithShared()}},
		"read, by a writer":            {is: func(g *guard.Guard) { hold(g, guard.WithShared()) }, busy: true, left: 30 * time.Second},
		"released":                     {is: func(g *guard.Guard) { _ = hold(g).Release(context.Background()) }},
		"in its minimum hold":          {is: func(g *guard.Guard) { _ = hold(g, guard.WithMinHold(time.Minute)).Release(context.Background()) }, busy: true, left: time.Minute},
		"done":                         {is: func(g *guard.Guard) { _ = hold(g, guard.WithOnce(time.Minute)).Complete(context.Background()) }},
		"held under its namespace":     {is: func(g *guard.Guard) { hold(g, guard.WithNamespace("other")) }, opts: []guard.Option{guard.WithNamespace("other")}, busy: true, left: 30 * time.Second},
		"held under another namespace": {is: func(g *guard.Guard) { hold(g, guard.WithNamespace("other")) }},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			locker := memory.New()
			g := openGuard(t, locker, guard.WithNamespace("test"))
			other := openGuard(t, locker, guard.WithNamespace("test"))
			defer func() { require.NoError(t, errors.Join(closed(g), closed(other))) }()
			c.is(other)
			looked := g.Adapter().Look(t.Context(), "key", c.opts...)
			if c.busy {
				busy := as[*guard.BusyError](t, looked)
				require.Equal(t, c.left, busy.Left)
				require.Equal(t, "key", busy.Key)
			} else {
				require.NoError(t, looked)
			}
			err := g.Do(t.Context(), "key", func(context.Context) error { return nil }, c.opts...)
			require.Equal(t, c.busy, errors.Is(err, guard.ErrBusy), "%v", err)
		})
	}
}

func closed(g *guard.Guard) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Close(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func TestLook_saysIfTheStoreDoesNotTell(t *testing.T) {
	g := newGuard(t, struct{ guard.Locker }{memory.New()}, guard.WithNamespace("test"))
	require.ErrorIs(t, g.Adapter().Look(t.Context(), "key"), errors.ErrUnsupported)
	require.ErrorIs(t, g.Adapter().Look(t.Context(), ""), errors.ErrUnsupported)
}
