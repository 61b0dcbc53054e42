package guard_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
)

// A warner is a store that evicts leases.
type warner struct {
	guard.Locker
	asked int
	warn  func(ctx context.Context) []error
}

func (w *warner) Warnings(ctx context.Context) []error { w.asked++; return w.warn(ctx) }

func TestWarn_aHookLearnsOnceWhatMakesTheStoreLoseLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evicts, forgets := errors.New("it evicts"), errors.New("it forgets")
		w := &warner{Locker: memory.New(), warn: func(context.Context) []error { return []error{evicts, forgets} }}
		var got []error
		g := newGuard(t, w, guard.WithHook(guard.Hook{Warn: func(_ context.Context, err error) { got = append(got, err) }}))
		require.Zero(t, w.asked, "before it is used")
		for range 3 {
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			synctest.Wait()
		}
		require.Equal(t, 1, w.asked)
		require.Equal(t, []error{evicts, forgets}, got)
	})
}

// A warning can come up in time, end, and come up again.
func TestWarn_theStoreIsAskedAgainWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		evicts := errors.New("it evicts")
		answers := [][]error{{evicts}, {evicts}, {evicts, errors.New("slow since 1h")}, nil, {evicts, errors.New("slow since 3h")}}
		w := &warner{Locker: memory.New()}
		w.warn = func(context.Context) []error { return answers[min(w.asked, len(answers))-1] }
		var got []string
		g := newGuard(t, w, guard.WithHook(guard.Hook{Warn: func(_ context.Context, err error) { got = append(got, err.Error()) }}))
		for n := range 4*len(answers) - 3 {
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			synctest.Wait()
			require.Equal(t, n/4+1, w.asked, "once an hour")
			time.Sleep(15 * time.Minute)
		}
		require.Equal(t, []string{"it evicts", "slow since 1h", "it evicts", "slow since 3h"}, got)
		time.Sleep(24 * time.Hour)
		require.Equal(t, len(answers), w.asked, "only while it is used")
	})
}

func TestWarn_nothingIsAskedWithoutAHookForIt(t *testing.T) {
	w := &warner{Locker: memory.New()}
	g := openGuard(t, w, guard.WithHook(guard.Hook{}))
	require.NoError(t, g.Do(t.Context(), "k", nothing))
	require.NoError(t, g.Close(t.Context()))
	require.Zero(t, w.asked)
}

// A store that does not answer, or fails, holds up Close for a moment and nothing else.
func TestWarn_aStoreThatDoesNotSay(t *testing.T) {
	for name, warn := range map[string]func(context.Context) []error{
		"hangs":  func(ctx context.Context) []error { <-ctx.Done(); return nil },
		"panics": func(context.Context) []error { panic("a bug") },
	} {
		inTimeOf(t, name, func(t *testing.T) {
			g := openGuard(t, &warner{Locker: memory.New(), warn: warn}, guard.WithHook(guard.Hook{Warn: func(context.Context, error) {}}))
			require.NoError(t, g.Do(t.Context(), "k", nothing))
			start := time.Now()
			require.NoError(t, g.Close(t.Context()))
			require.LessOrEqual(t, time.Since(start), time.Second)
		})
	}
}
