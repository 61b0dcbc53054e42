package redlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// A box is a node in memory that can be down, freeze, be slow and forget, and whose clock can be
// ahead of the others'. As with a server, what was sent to it is done even if the caller has left
// meanwhile.
type box struct {
	ahead time.Duration

	mu     sync.Mutex
	store  *memory.Locker
	down   bool
	frozen chan struct{} // closed at the thaw; nil if it is not frozen
	delay  func() time.Duration
	asked  map[driver.Op]int
}

var _ driver.Async = (*box)(nil)

func nodesOf(boxes []*box) (nodes []guard.Locker) {
	for _, b := range boxes {
		nodes = append(nodes, b)
	}
	return nodes
}

// inBubble runs f in virtual time with a quorum of n boxes.
func inBubble(t *testing.T, n int, f func(t *testing.T, l *redlock.Locker, boxes []*box)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		boxes := make([]*box, n)
		for i := range boxes {
			boxes[i] = &box{store: memory.New(), asked: map[driver.Op]int{}}
		}
		t.Cleanup(func() {
			for _, b := range boxes {
				b.heal()
			}
			time.Sleep(time.Hour) // a bubble waits for its timers, but not for sleeping goroutines
		})
		f(t, redlock.New(nodesOf(boxes)), boxes)
	})
}

func (b *box) kill()   { b.mu.Lock(); defer b.mu.Unlock(); b.down = true }
func (b *box) freeze() { b.mu.Lock(); defer b.mu.Unlock(); b.frozen = make(chan struct{}) }
func (b *box) flush()  { b.mu.Lock(); defer b.mu.Unlock(); b.store = memory.New() }

// answerAfter has each answer take as long as delay says, of which a half is the request's.
func (b *box) answerAfter(delay func() time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.delay = delay
}

// heal ends all faults but the delay.
func (b *box) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = false
	if b.frozen != nil {
		close(b.frozen)
		b.frozen = nil
	}
}

// count returns how often the box was asked for op.
func (b *box) count(op driver.Op) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[op]
}

// do has f done on the store, and returns an error if there is no answer before ctx ends.
func (b *box) do(ctx context.Context, op driver.Op, calls int, f func(*memory.Locker)) error {
	b.mu.Lock()
	b.asked[op] += calls
	down, frozen, delay := b.down, b.frozen, time.Duration(0)
	if b.delay != nil {
		delay = b.delay() / 2
	}
	b.mu.Unlock()
	if down {
		return guardtest.Fail(driver.KindConnection)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if frozen != nil {
			<-frozen
		}
		time.Sleep(delay) // the node is that slow
		b.mu.Lock()
		store := b.store
		b.mu.Unlock()
		f(store)
		time.Sleep(delay)
	}()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// here and away turn a fence of the others' into one of a clock that is ahead, and back.
func (b *box) away(fence uint64) uint64 { return fence + b.shift() }

func (b *box) here(fence uint64) uint64 {
	if fence <= b.shift() {
		return fence
	}
	return fence - b.shift()
}

func (b *box) shift() uint64 {
	return uint64(b.ahead/time.Second)<<20 + uint64(b.ahead%time.Second/time.Microsecond)
}

func (b *box) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	c.Fence, c.Fences.Hint = b.here(c.Fence), b.here(c.Fences.Hint)
	var grant driver.Answer
	err := b.do(ctx, driver.OpAcquire, 1, func(l *memory.Locker) {
		grant, _ = l.TryAcquire(context.Background(), c)
	})
	if err != nil {
		return driver.Answer{}, err
	}
	if grant.Fence != 0 {
		grant.Fence = b.away(grant.Fence)
	}
	if grant.Clock != 0 {
		grant.Clock = b.away(grant.Clock)
	}
	return grant, nil
}

func (b *box) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	b.renew(ctx, []driver.Claim{c}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

func (b *box) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op == driver.OpRenew {
		go b.renew(ctx, claims, done)
		return
	}
	driver.Each{Locker: b}.Start(ctx, op, claims, after, done)
}

func (b *box) renew(ctx context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
	held := make([]bool, len(claims))
	err := b.do(ctx, driver.OpRenew, len(claims), func(l *memory.Locker) {
		for i, c := range claims {
			c.Fence = b.here(c.Fence)
			held[i], _ = l.Renew(context.Background(), c)
		}
	})
	for i := range claims {
		done(i, driver.Answer{Held: err == nil && held[i]}, err)
	}
}

func (b *box) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	held := false
	err := b.do(ctx, driver.OpRelease, 1, func(l *memory.Locker) {
		held, _ = l.Release(context.Background(), c, after)
	})
	return err == nil && held, err
}

// requireHeld asserts that the claim holds its key in the boxes of these numbers, under its fence,
// and in no other.
func requireHeld(t testing.TB, boxes []*box, c driver.Claim, in ...int) {
	t.Helper()
	synctest.Wait()
	for i, b := range boxes {
		want := uint64(0)
		if slices.Contains(in, i) {
			want = c.Fence
		}
		require.Equal(t, want, b.fence(t, c.Key, c.ID), "the fence in node %d", i)
	}
}

// fence returns the fence under which the claim of that ID holds the key in the box, or 0.
func (b *box) fence(t testing.TB, key, id string) uint64 {
	t.Helper()
	b.mu.Lock()
	store := b.store
	b.mu.Unlock()
	if h := look(t, store, key); h.id == id {
		return b.away(h.fence)
	}
	return 0
}

// A holding is what a node has of a key.
type holding struct {
	state driver.State // Granted if the key is free
	id    string
	fence uint64
}

// look asks a node what it has of a key, and changes nothing but for the end of the holder's TTL.
func look(t testing.TB, node guard.Locker, key string) holding {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	probe := driver.Claim{Key: key, ID: "probe", Owner: "probe", TTL: time.Second}
	g, err := node.TryAcquire(ctx, probe)
	require.NoError(t, err)
	switch g.State {
	case driver.Granted:
		_, err = node.Release(ctx, probe, driver.After{})
		require.NoError(t, err)
		return holding{state: driver.Granted}
	case driver.Busy:
		probe.ID, probe.Owner, probe.TTL = g.Holder, g.Holder, max(g.Left, time.Millisecond)
		again, err := node.TryAcquire(ctx, probe)
		require.NoError(t, err)
		if again.Held {
			return holding{driver.Busy, g.Holder, again.Fence}
		}
	case driver.Done:
	}
	return holding{state: g.State, id: g.Holder}
}

// claimOf returns a claim of the key that holds for a minute.
func claimOf(key, id string) driver.Claim {
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: time.Minute}
}

// take acquires the key with the claim, and returns the claim with its fence.
func take(t testing.TB, l guard.Locker, c driver.Claim) driver.Claim {
	t.Helper()
	g, err := l.TryAcquire(t.Context(), c)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.State)
	c.Fence = g.Fence
	return c
}

// nothing is work that succeeds at once.
func nothing(context.Context) error { return nil }

// newGuard returns a Guard over l, closed with the test.
func newGuard(t testing.TB, l guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(l, append(opts, guard.WithHook(faultmetrics.Watch(t, shows).Hook))...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, g.Close(ctx))
	})
	return g
}
