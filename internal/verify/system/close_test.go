package system_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// A rolling restart: a process closes its Guard in time, in whatever state its calls are. The
// default TTL is 30 s, so that a claim which Close leaves behind is found.
func TestClose_leavesNoKeyLocked(t *testing.T) {
	t.Parallel()
	const rounds = 4
	for _, backend := range []string{"single", "reentrant", "redlock"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, backend)
			next := s.guard(t)
			for name, c := range map[string]struct {
				keys, calls int // calls for each key
				opts        []guard.Option
			}{
				"calls that wait":      {8, 4, []guard.Option{guard.WithWait(guard.Forever)}},
				"calls in a queue":     {8, 4, []guard.Option{guard.WithWait(guard.Forever), guard.WithFair()}},
				"calls without a wait": {200, 1, nil},
			} {
				if backend == "redlock" && name == "calls in a queue" {
					continue // RedLock has no queue
				}
				t.Run(name, func(t *testing.T) {
					for round := range rounds {
						key := func(i int) string { return fmt.Sprint(name, round, ".", i) }
						g := s.guard(t, c.opts...)
						var all sync.WaitGroup
						for i := range c.keys * c.calls {
							all.Go(func() {
								err := g.Do(t.Context(), key(i%c.keys), func(context.Context) error {
									time.Sleep(rand.N(2 * time.Millisecond))
									return nil
								})
								if err != nil && !errors.Is(err, guard.ErrClosed) {
									t.Error(err)
								}
							})
						}
						time.Sleep(rand.N(5 * time.Millisecond)) // in any state
						ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
						require.NoError(t, g.Close(ctx))
						cancel()
						for i := range c.keys {
							require.NoError(t, next.Do(t.Context(), key(i), nothing))
						}
						all.Wait()
					}
				})
			}
		})
	}
}
