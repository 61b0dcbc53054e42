package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// A sharingStore is a testStore whose keys can have several holders.
type sharingStore struct{ *testStore }

func (s sharingStore) Describe() driver.Description {
	d := s.memory.Describe()
	d.Owners = true
	return d
}

func (s sharingStore) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	return s.memory.Subscribe(key, id, notify)
}

// sharing runs f in virtual time with two Guards, as of two processes, over one store.
func sharing(t *testing.T, f func(t *testing.T, store sharingStore, here, there *guard.Guard), opts ...guard.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := sharingStore{newTestStore()}
		var guards [2]*guard.Guard
		for i := range guards {
			g := openGuard(t, store, append([]guard.Option{guard.WithTTL(ttl)}, opts...)...)
			guards[i] = g
			t.Cleanup(func() {
				ending, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				require.NoError(t, g.Close(ending))
			})
		}
		f(t, store, guards[0], guards[1])
		synctest.Wait()
	})
}

// sharingOf is a subtest with two Guards over one store.
func sharingOf(t *testing.T, name string, f func(t *testing.T, store sharingStore, here, there *guard.Guard), opts ...guard.Option) {
	t.Helper()
	t.Run(name, func(t *testing.T) { sharing(t, f, opts...) })
}

func TestShared_readersTogetherAndAWriterAlone(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		var readers []*guard.Lease
		fence := uint64(0)
		for i := range 6 {
			time.Sleep(50 * time.Millisecond) // so that each has a lease of its own
			lease := hold(t, []*guard.Guard{here, there}[i%2], "k", guard.WithShared())
			require.Greater(t, lease.Fence(), fence)
			fence = lease.Fence()
			readers = append(readers, lease)
		}
		time.Sleep(3 * ttl) // and each is renewed
		for _, lease := range readers {
			require.True(t, lease.Valid())
			_, err := there.Acquire(t.Context(), "k")
			require.ErrorIs(t, err, guard.ErrBusy)
			require.NoError(t, lease.Release(t.Context()))
		}
		writer := hold(t, there, "k")
		require.Greater(t, writer.Fence(), fence)
		_, err := here.Acquire(t.Context(), "k", guard.WithShared())
		require.ErrorIs(t, err, guard.ErrBusy)
		require.NoError(t, writer.Release(t.Context()))
		require.NoError(t, hold(t, here, "k", guard.WithShared()).Release(t.Context()))
	})
}

// A thousand readers of one process cost the store what one costs.
func TestShared_readersOfAProcessHaveOneLease(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
			time.Sleep(time.Millisecond) // of virtual time, in which all come
			return driver.Answer{}, guardtest.ErrUnscripted
		}
		var fences sync.Map
		var most, now atomic.Int64
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				require.NoError(t, here.Do(t.Context(), "k", func(ctx context.Context) error {
					_, known := fences.LoadOrStore(guard.Fence(ctx), true)
					require.False(t, known, "each has a fence of its own")
					now.Add(1)
					defer now.Add(-1)
					time.Sleep(30 * time.Second)
					most.Store(now.Load())
					time.Sleep(30 * time.Second)
					return ctx.Err()
				}, guard.WithShared()))
			})
		}
		all.Wait()
		require.EqualValues(t, 1000, most.Load())
		require.Equal(t, 1, store.count(driver.OpAcquire))
		require.Equal(t, 1, store.count(driver.OpRelease))
		require.InDelta(t, 20, store.count(driver.OpRenew), 4, "a minute, at a third of the TTL each")
		require.True(t, store.free("k"))
	})
}

// A reader that is let in by another one is linked to that one, and not to itself.
func TestShared_readersThatAreLetInNameTheOneBefore(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		writer := hold(t, there, "k", guard.WithLabel("the writer"))
		var all sync.WaitGroup
		var readers [3]recorder
		for i := range readers {
			all.Go(func() {
				require.NoError(t, here.Do(t.Context(), "k", sleeping(time.Second),
					guard.WithShared(), guard.WithWait(guard.Forever), guard.WithLabel(fmt.Sprint("reader ", i)), guard.WithHook(readers[i].hook())))
			})
			synctest.Wait()
		}
		require.NoError(t, writer.Release(t.Context()))
		all.Wait()
		for i, want := range []string{"the writer", "reader 0", "reader 1"} {
			require.Equal(t, want, last[guard.AcquireEvent](t, &readers[i]).Previous)
		}
	})
}

// Readers that come one after the other do not keep each other's lease forever.
func TestShared_aLeaseIsJoinedForABoundedTime(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		ctx, stop := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		for i := range 10 { // there is always one that reads
			readers.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				for ctx.Err() == nil {
					err := here.Do(ctx, "k", sleeping(10*time.Millisecond), guard.WithShared(), guard.WithWait(guard.Forever))
					if ctx.Err() == nil {
						require.NoError(t, err)
					}
				}
			})
		}
		time.Sleep(time.Second)
		for range 5 {
			begin := time.Now()
			require.NoError(t, there.Do(t.Context(), "k", nothing, guard.WithWait(guard.Forever)))
			require.Less(t, time.Since(begin), time.Second, "a writer's wait")
			time.Sleep(time.Second)
		}
		stop()
		readers.Wait()
	})
}

// A lease is not renewed any more when the maximum holds of all its readers have passed. A reader
// that comes then needs another one.
func TestShared_aLeaseThatIsNotRenewedIsNotJoined(t *testing.T) {
	brief := guard.WithMaxHold(5 * time.Millisecond)
	for name, before := range map[string][]struct {
		opts  []guard.Option
		takes time.Duration // it runs on after its maximum hold
	}{
		"one reader's time has passed":   {{[]guard.Option{brief}, 3 * ttl}},
		"all readers' times have passed": {{[]guard.Option{brief}, 3 * ttl}, {[]guard.Option{brief}, 2 * ttl}},
		"the last one has left":          {{[]guard.Option{brief}, 3 * ttl}, {nil, 7 * time.Millisecond}},
		"the first one has left":         {{nil, 7 * time.Millisecond}, {[]guard.Option{brief}, 3 * ttl}},
	} {
		sharingOf(t, name, func(t *testing.T, _ sharingStore, here, _ *guard.Guard) {
			var all sync.WaitGroup
			for _, reader := range before {
				all.Go(func() {
					_ = here.Do(t.Context(), "k", sleeping(reader.takes), append(reader.opts, guard.WithShared())...)
				})
				synctest.Wait()
			}
			time.Sleep(10 * time.Millisecond)
			late := hold(t, here, "k", guard.WithShared())
			time.Sleep(4 * ttl)
			require.True(t, late.Valid())
			require.NoError(t, late.Release(t.Context()))
			all.Wait()
		})
	}
}

// Readers do not overtake a writer of their own process.
func TestShared_readersDoNotOvertakeAWriter(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, _ *guard.Guard) {
		reader := hold(t, here, "k", guard.WithShared())
		order := make(chan string, 2)
		for _, c := range []struct {
			name string
			opts []guard.Option
		}{{"writer", nil}, {"reader", []guard.Option{guard.WithShared()}}} {
			go func() {
				_ = here.Do(t.Context(), "k", func(context.Context) error { order <- c.name; return nil }, append(c.opts, guard.WithWait(ttl))...)
			}()
			time.Sleep(time.Millisecond)
		}
		_, err := here.Acquire(t.Context(), "k", guard.WithShared())
		require.ErrorIs(t, err, guard.ErrBusy)
		require.NoError(t, reader.Release(t.Context()))
		require.Equal(t, []string{"writer", "reader"}, []string{<-order, <-order})
	})
}

func TestShared_aWriterThatLeavesLetsReadersIn(t *testing.T) {
	for name, end := range map[string]func(leave context.CancelFunc, g *guard.Guard){
		"it is cancelled":     func(leave context.CancelFunc, _ *guard.Guard) { leave() },
		"its Guard is closed": func(_ context.CancelFunc, g *guard.Guard) { _ = g.Close(context.Background()) },
	} {
		sharingOf(t, name, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
			reader := hold(t, here, "k", guard.WithShared())
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan error)
			go func() { left <- there.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)) }()
			time.Sleep(time.Second)
			_, err := here.Acquire(t.Context(), "k", guard.WithShared())
			require.ErrorIs(t, err, guard.ErrBusy, "a writer waits")
			end(leave, there)
			require.Error(t, <-left)
			synctest.Wait()
			require.NoError(t, hold(t, here, "k", guard.WithShared()).Release(t.Context()))
			require.NoError(t, reader.Release(t.Context()))
		})
	}
}

// A store looks for what a claim has left only if it is told that the claim was there before. A
// writer that has asked once, and gives up, was.
func TestShared_aClaimThatIsWithdrawnWasThereBefore(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, there *guard.Guard) {
		reader := hold(t, here, "k", guard.WithShared())
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() { left <- there.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)) }()
		synctest.Wait()
		leave()
		require.Error(t, <-left)
		synctest.Wait()
		calls := store.Calls()
		require.Len(t, calls, 3)
		asked, withdrawn := calls[1], calls[2]
		require.Equal(t, driver.HeldForClaim, asked.Grant.Reason)
		require.False(t, asked.Claim.Repeated)
		require.Equal(t, driver.OpRelease, withdrawn.Op)
		require.Equal(t, asked.Claim.ID, withdrawn.Claim.ID)
		require.True(t, withdrawn.Claim.Repeated)
		require.NoError(t, reader.Release(t.Context()))
	})
}

func TestShared_endsOfOneReader(t *testing.T) {
	for name, end := range map[string]func(){
		"returns": func() {},
		"panics":  func() { panic("a reader") },
		"Goexit":  runtime.Goexit,
	} {
		sharingOf(t, name, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
			stays := hold(t, here, "k", guard.WithShared())
			over := make(chan struct{})
			go func() {
				defer close(over)
				defer func() { _ = recover() }()
				_ = here.Do(context.Background(), "k", func(context.Context) error { end(); return nil }, guard.WithShared())
			}()
			<-over
			require.Equal(t, 1, store.count(driver.OpAcquire), "they have one lease")
			require.Zero(t, store.count(driver.OpRelease))
			time.Sleep(2 * ttl)
			require.True(t, stays.Valid())
			require.NoError(t, stays.Release(t.Context()))
			require.True(t, store.free("k"))
		})
	}
}

func TestShared_theLeaseOfSeveralIsLostTogether(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		var forgotten atomic.Bool
		store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			if forgotten.Load() {
				return false, nil
			}
			return false, guardtest.ErrUnscripted
		}
		leases := []*guard.Lease{hold(t, here, "k", guard.WithShared()), hold(t, here, "k", guard.WithShared())}
		short := hold(t, here, "k", guard.WithShared(), guard.WithMaxHold(time.Second))
		require.Equal(t, 1, store.count(driver.OpAcquire))
		time.Sleep(2 * time.Second)
		lost := as[*guard.LostError](t, context.Cause(short.Context()))
		require.Equal(t, guard.LossMaxHold, lost.Reason)
		time.Sleep(2 * ttl)
		for _, lease := range leases {
			require.True(t, lease.Valid(), "the maximum hold of one ends that one")
		}
		forgotten.Store(true)
		time.Sleep(ttl)
		for _, lease := range leases {
			require.ErrorAs(t, context.Cause(lease.Context()), &lost)
			require.Equal(t, guard.LossNotHeld, lost.Reason)
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
		}
		require.ErrorIs(t, short.Release(t.Context()), guard.ErrLost)
	})
}

// A function that ignores the end of its maximum hold keeps the key for one TTL more.
func TestShared_maxHoldOfTheLastEndsRenewal(t *testing.T) {
	sharing(t, func(t *testing.T, _ sharingStore, here, there *guard.Guard) {
		hangs := hold(t, here, "k", guard.WithShared(), guard.WithMaxHold(time.Second))
		stays := hold(t, here, "k", guard.WithShared())
		time.Sleep(3 * ttl)
		require.NoError(t, stays.Release(t.Context()))
		require.NoError(t, there.Do(t.Context(), "k", nothing, guard.WithWait(ttl+time.Second)))
		require.Error(t, hangs.Release(t.Context()))
	})
}

func TestShared_closeRevokesAll(t *testing.T) {
	sharing(t, func(t *testing.T, store sharingStore, here, _ *guard.Guard) {
		leases := []*guard.Lease{hold(t, here, "k", guard.WithShared()), hold(t, here, "k", guard.WithShared())}
		ctx := within(t, time.Second)
		require.ErrorContains(t, here.Close(ctx), "2 leases were revoked")
		for _, lease := range leases {
			require.ErrorIs(t, context.Cause(lease.Context()), guard.ErrClosed)
		}
		require.True(t, store.free("k"))
	})
}
