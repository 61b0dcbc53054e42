package guard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// An abandonScene is a call that ends while the answer to its request is on its way.
type abandonScene struct {
	t      *testing.T
	g      *guard.Guard
	cancel context.CancelFunc
	all    sync.WaitGroup
}

// An abandonment is how the call ends.
type abandonment struct {
	name   string
	during func(s *abandonScene) // is called between the request and its answer, if not nil
	hook   guard.Hook
}

func abandonments() []abandonment {
	ends := []abandonment{
		{name: "the context was cancelled", during: func(s *abandonScene) { s.cancel() }},
		{name: "the context's deadline has passed", during: func(*abandonScene) { time.Sleep(time.Second + time.Millisecond) }},
		{name: "the Guard was closed", during: func(s *abandonScene) {
			s.all.Go(func() { require.NoError(s.t, s.g.Close(context.WithoutCancel(s.t.Context()))) })
			synctest.Wait()
		}},
	}
	for _, hook := range []string{"Call", "Wait", "AcquireEnd"} {
		ends = append(ends, abandonment{name: "the hook " + hook + " has ended the goroutine", hook: hookOf(hook, runtime.Goexit)})
	}
	return ends
}

// Whatever the store answers to a call that has ended by then, nothing of the call stays in the
// store: no lease, no position in the queue, nothing that keeps others away.
func TestAcquire_undoesAnAnswerThatTheCallDoesNotUse(t *testing.T) {
	waits := guard.WithWait(guard.Forever)
	alone := driver.Claim{Key: "k", ID: "other", Owner: "other", TTL: time.Hour}
	shared := alone
	shared.MaxHolders = driver.Unlimited
	answers := []struct {
		name   string
		holder *driver.Claim // or nil
		after  driver.After  // if not zero, the holder has left it
		opts   []guard.Option
		err    error
	}{
		{name: "granted"},
		{name: "granted in the queue", opts: []guard.Option{waits, guard.WithFair()}},
		{name: "granted, shared", holder: &shared, opts: []guard.Option{guard.WithShared()}},
		{name: "busy", holder: &alone},
		{name: "busy and queued", holder: &alone, opts: []guard.Option{waits, guard.WithFair()}},
		{name: "busy and wanted", holder: &shared, opts: []guard.Option{waits}},
		{name: "busy, queued and wanted", holder: &shared, opts: []guard.Option{waits, guard.WithFair()}},
		{name: "done", holder: &alone, after: driver.After{Keep: time.Hour, Done: true}, opts: []guard.Option{waits, guard.WithFair()}},
		{name: "granted, but the answer is lost", err: guardtest.Fail(driver.KindTimeout)},
		{name: "queued, but the answer is lost", holder: &alone, opts: []guard.Option{waits, guard.WithFair()}, err: guardtest.Fail(driver.KindTimeout)},
		{name: "wanted, but the answer is lost", holder: &shared, opts: []guard.Option{waits}, err: guardtest.Fail(driver.KindTimeout)},
	}
	for _, answer := range answers {
		for _, end := range abandonments() {
			inTimeOf(t, answer.name+", and "+end.name, func(t *testing.T) {
				store := sharingStore{newTestStore()}
				holders := 0
				if answer.holder != nil {
					store.occupy(t, *answer.holder, answer.after)
					holders = len(store.show(t).Holders)
				}
				s := &abandonScene{t: t}
				store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
					grant, err := store.memory.TryAcquire(context.WithoutCancel(ctx), c)
					if end.during != nil {
						end.during(s)
					}
					if answer.err != nil {
						return driver.Answer{}, answer.err
					}
					return grant, err
				}
				s.play(store, end.during == nil, append(answer.opts, guard.WithHook(end.hook)))
				after := store.show(t)
				require.Empty(t, after.Queue)
				require.Empty(t, after.Wanted)
				require.Len(t, after.Holders, holders)
			})
		}
	}
}

// play makes the call. Its function may run only if the key could be granted before the call ended.
func (s *abandonScene) play(store guard.Locker, mayRun bool, opts []guard.Option) {
	var err error
	s.g, err = guard.New(store, append(opts, guard.WithTTL(ttl))...)
	require.NoError(s.t, err)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	s.cancel = cancel
	s.all.Go(func() { _ = s.g.Do(ctx, "k", func(context.Context) error { require.True(s.t, mayRun); return nil }) })
	s.all.Wait()
	synctest.Wait() // for the cleaner
	require.NoError(s.t, s.g.Close(s.t.Context()))
}

// occupy makes the claim, and leaves its key as after says if that is not zero.
func (s *testStore) occupy(t *testing.T, c driver.Claim, after driver.After) {
	t.Helper()
	grant, err := s.memory.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, grant.State)
	if after.Keep > 0 {
		s.release(t, c, after)
	}
}

// show returns what the store keeps about the key.
func (s *testStore) show(t *testing.T) driver.KeyInfo {
	t.Helper()
	info, err := s.memory.Show(t.Context(), "k")
	require.NoError(t, err)
	return info
}

// hurried runs calls with contexts of 0 to 5 ms, by n goroutines, for a second. A request takes
// a millisecond each way.
func hurried(t *testing.T, store sharingStore, n int, do func(ctx context.Context, g int) error) *sync.WaitGroup {
	t.Helper()
	store.OnAcquire = func(ctx context.Context, _ int, c driver.Claim) (driver.Answer, error) {
		time.Sleep(time.Millisecond)
		grant, err := store.memory.TryAcquire(context.WithoutCancel(ctx), c)
		time.Sleep(time.Millisecond)
		return grant, err
	}
	until := time.Now().Add(time.Second)
	var all sync.WaitGroup
	for i := range n {
		rng := rand.New(rand.NewPCG(1, uint64(i)))
		all.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.Int64N(int64(5*time.Millisecond))))
				_ = do(ctx, i)
				<-ctx.Done()
				cancel()
			}
		})
	}
	return &all
}

// Each of the calls gives up at some moment of its request. None of them delays the others.
func TestWithFair_callsThatGiveUpDelayNobody(t *testing.T) {
	for _, n := range []int{5, 40} {
		sharingOf(t, fmt.Sprint(n), func(t *testing.T, store sharingStore, here, there *guard.Guard) {
			guards := []*guard.Guard{here, there}
			work := sleeping(time.Millisecond)
			load := hurried(t, store, n, func(ctx context.Context, i int) error { return guards[i%2].Do(ctx, "k", work) })
			var patient sync.WaitGroup
			for i := range 12 {
				patient.Go(func() {
					ctx := within(t, time.Second)
					require.NoError(t, guards[i%2].Do(ctx, "k", work), "a caller that waits for a second")
				})
			}
			patient.Wait()
			load.Wait()
			synctest.Wait()
			left := len(store.show(t).Queue)
			require.Zero(t, left, "calls that have given up")
			start := time.Now()
			require.NoError(t, here.Do(t.Context(), "k", nothing))
			require.Less(t, time.Since(start), 10*time.Millisecond, "the key is free")
		}, guard.WithFair(), guard.WithWait(guard.Forever))
	}
}

// Each writer gives up at some moment of its request.
func TestShared_writersThatGiveUpKeepNoReaderAway(t *testing.T) {
	for _, n := range []int{5, 40} {
		sharingOf(t, fmt.Sprint(n), func(t *testing.T, store sharingStore, here, there *guard.Guard) {
			reader := hold(t, here, "k", guard.WithShared())
			guards := []*guard.Guard{here, there}
			load := hurried(t, store, n, func(ctx context.Context, i int) error {
				return guards[i%2].Do(ctx, "k", nothing, guard.WithWait(guard.Forever))
			})
			load.Wait()
			synctest.Wait()
			require.Empty(t, store.show(t).Wanted, "a writer that has given up")
			require.NoError(t, there.Do(t.Context(), "k", nothing, guard.WithShared()))
			require.NoError(t, reader.Release(t.Context()))
		})
	}
}
