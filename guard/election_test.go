package guard_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
)

// An election is two processes, a and b, with a Candidate each, over one store. a leads first.
type election struct {
	t       *testing.T
	store   *memory.Locker
	a, b    *voter
	leading atomic.Int32
	mu      sync.Mutex
	fences  []uint64 // of all terms, in their order
}

// A voter is a process with a Candidate.
type voter struct {
	*guard.Candidate
	election *election
	guard    *guard.Guard
	away     atomic.Bool // the store, for this process

	// turn is what the function does in the next term. By default it leads until its context ends.
	turn   atomic.Pointer[func(ctx context.Context) error]
	cancel context.CancelFunc // of the context of Run
	began  chan time.Time     // terms
	causes chan error         // with which the contexts of terms ended
	ended  chan any           // what Run returned, or its panic
}

func (e *election) voter(opts ...guard.Option) *voter {
	v := &voter{election: e, began: make(chan time.Time, 100), causes: make(chan error, 100), ended: make(chan any, 1)}
	line := shown{linetest.Line{Locker: e.store, Ask: func(context.Context, linetest.Call) error {
		if v.away.Load() {
			return guardtest.Fail(driver.KindConnection)
		}
		return nil
	}}}
	g, err := guard.New(line, guard.WithTTL(ttl))
	require.NoError(e.t, err)
	v.guard = g
	v.Candidate, err = g.Candidate("leader", v.lead, opts...)
	require.NoError(e.t, err)
	return v
}

// shown is a line through which Show goes, too.
type shown struct{ linetest.Line }

func (s shown) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	if err := s.Ask(ctx, linetest.Call{Name: "show", Op: driver.OpInspect, Key: key}); err != nil {
		return driver.KeyInfo{}, err
	}
	return s.Line.Show(ctx, key)
}

// lead is the function of the Candidate.
func (v *voter) lead(ctx context.Context) error {
	e := v.election
	require.EqualValues(e.t, 1, e.leading.Add(1), "one leads at a time")
	defer e.leading.Add(-1)
	fence, ok := v.Leading()
	require.True(e.t, ok)
	require.Equal(e.t, guard.Fence(ctx), fence)
	e.mu.Lock()
	if n := len(e.fences); n > 0 {
		require.Greater(e.t, fence, e.fences[n-1], "the term is a fence")
	}
	e.fences = append(e.fences, fence)
	e.mu.Unlock()
	v.began <- time.Now()
	if turn := v.turn.Swap(nil); turn != nil {
		return (*turn)(ctx)
	}
	<-ctx.Done()
	_, ok = v.Leading()
	require.False(e.t, ok, "the context of the term has ended")
	v.causes <- context.Cause(ctx)
	return ctx.Err()
}

func (v *voter) run() {
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	go func() {
		var result any = errors.New("goexit")
		defer func() {
			if p := recover(); p != nil {
				result = p
			}
			v.ended <- result
		}()
		result = v.Run(ctx)
	}()
}

// leads waits until v leads, and requires that this happens within a time.
func (v *voter) leads(within time.Duration) {
	v.election.t.Helper()
	start := time.Now()
	select {
	case began := <-v.began:
		require.LessOrEqual(v.election.t, began.Sub(start), within)
	case <-time.After(time.Hour): // virtual time
		require.Fail(v.election.t, "it does not lead")
	}
}

func inElection(t *testing.T, f func(e *election)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &election{t: t, store: memory.New()}
		e.a, e.b = e.voter(), e.voter()
		f(e)
		for _, v := range []*voter{e.a, e.b} {
			if v.cancel != nil {
				v.cancel()
			}
			require.NoError(t, v.guard.Close(context.Background()))
		}
		require.Zero(t, e.leading.Load())
	})
}

// begin lets a lead for a minute, while b waits.
func (e *election) begin() {
	e.a.run()
	e.a.leads(0)
	e.b.run()
	time.Sleep(time.Minute) // virtual time
	require.Empty(e.t, e.b.began)
}

var errWork = errors.New("work failed")
