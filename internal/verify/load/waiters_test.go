package load_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// processes is how many Guards the waiters are spread over, each on a client of its own, as those
// of one process have it.
const processes = 4

// A crowd is how many callers wait for each of how many keys, for how long they wait for a holder
// that is in no hurry, and for how long they come again.
type crowd struct {
	keys, each int
	wait, span time.Duration
}

func TestLoad_servesEveryWaiterForOneKey(t *testing.T) {
	c := crowd{keys: 1, each: 1_000, wait: time.Second, span: 500 * time.Millisecond}
	if full() {
		c = crowd{keys: 1, each: 10_000, wait: 30 * time.Second, span: 30 * time.Second}
	}
	c.onEach(t, "single")
}

func TestLoad_servesEveryWaiterForManyKeys(t *testing.T) {
	c := crowd{keys: 100, each: 20, wait: time.Second, span: 500 * time.Millisecond}
	if full() {
		c = crowd{keys: 5_000, each: 20, wait: 30 * time.Second, span: 30 * time.Second}
	}
	c.onEach(t, "reentrant")
}

// onEach runs it on each backend; in the short form on those that are named.
func (c crowd) onEach(t *testing.T, inShort ...string) {
	t.Helper()
	onEach(t, inShort, func(t *testing.T, backend string) {
		p := newPlace(t, backend, processes+1, c.waiters(), guard.WithTTL(10*time.Second))
		c.run(t, p)
		p.requireBase()
	})
}

func (c crowd) waiters() int { return c.keys * c.each }

// run is a function of its own, so that nothing of it is in memory afterwards.
func (c crowd) run(t *testing.T, p *place) {
	q := &queue{crowd: c, place: p, resources: make([]resource, c.keys), turns: make([]int, c.waiters())}
	q.once(t)
	q.again(t)
}

// A queue is a crowd that waits.
type queue struct {
	crowd
	place     *place
	resources []resource
	turns     []int // of each waiter
	handOffs  spans
	used      atomic.Int64 // keys
	overlaps  atomic.Int64 // holders that found another one
	stale     atomic.Int64 // holders whose fence was not above all before
}

// A resource is what the holders of a key write to.
type resource struct {
	mu     sync.Mutex // which nobody has ever to wait for
	fence  uint64
	writes int
	left   time.Time // when the last holder's function ended
}

func (q *queue) key(n int) string { return "waited for:" + strconv.Itoa(n) }

// all has f called for each waiter, in a goroutine of its own, and returns what waits for their
// end.
func (q *queue) all(f func(waiter int)) (wait func()) {
	var all sync.WaitGroup
	for waiter := range q.turns {
		all.Go(func() { f(waiter) })
	}
	return all.Wait
}

// turn has a waiter wait for its key, and write to its resource.
func (q *queue) turn(ctx context.Context, waiter int) error {
	n := waiter % q.keys
	r := &q.resources[n]
	return q.place.guards[waiter/q.keys%processes].Do(ctx, q.key(n), func(ctx context.Context) error {
		if !r.mu.TryLock() {
			q.overlaps.Add(1)
			return errors.New("another holder is there")
		}
		defer r.mu.Unlock()
		if r.left.IsZero() {
			q.used.Add(1)
		} else {
			q.handOffs.add(time.Since(r.left))
		}
		fence := guard.Fence(ctx)
		if fence <= r.fence {
			q.stale.Add(1)
		}
		r.fence = fence
		r.writes++
		q.turns[waiter]++
		r.left = time.Now()
		return nil
	}, guard.WithWait(guard.Forever))
}

// once has every waiter wait while another process holds its key, and then get in exactly once.
func (q *queue) once(t *testing.T) {
	holder := q.place.guards[processes]
	leases := make([]*guard.Lease, q.keys)
	inParallel(q.keys, func(n int) {
		var err error
		if leases[n], err = holder.Acquire(context.Background(), q.key(n), guard.WithWait(soon)); err != nil {
			t.Errorf("holder of %s: %v", q.key(n), err)
		}
	})
	require.False(t, t.Failed())

	empty := q.place.usage()
	var inside atomic.Int64
	wait := q.all(func(waiter int) {
		inside.Add(1)
		if err := q.turn(context.Background(), waiter); err != nil {
			t.Errorf("waiter %d: %v", waiter, err)
		}
	})
	require.Eventually(t, func() bool { return inside.Load() == int64(q.waiters()) }, soon, 10*time.Millisecond)
	listeners := int64(q.keys * processes)
	subscribed := func() int64 { return q.place.server.Calls(t)["subscribe"] }
	require.Eventually(t, func() bool { return subscribed() >= listeners }, soon, 10*time.Millisecond, "the first of each queue has subscribed")
	// in which those ask once more, as they listen now: it is only for the figures below
	time.Sleep(q.wait / 2)
	start := q.place.meter()
	time.Sleep(q.wait / 2) // in which is measured what they cost
	cost := q.place.since(start)
	waiting := q.place.usage()
	requireAllValid(t, leases)
	require.Zero(t, q.resources[0].writes, "while another has the key")
	require.Equal(t, listeners, subscribed(), "one for a key and a process, and no connection made anew")
	t.Logf("%d wait: %s", q.waiters(), cost)
	t.Logf("wait:   %v", waiting)
	t.Logf("a waiter, beside its goroutine: %d bytes of heap, %.2f goroutines",
		(waiting.heap-empty.heap)/q.waiters(), float64(waiting.goroutines-empty.goroutines-q.waiters())/float64(q.waiters()))

	start = q.place.meter()
	inParallel(q.keys, func(n int) {
		if err := leases[n].Release(context.Background()); err != nil {
			t.Errorf("holder of %s: %v", q.key(n), err)
		}
	})
	wait()
	t.Logf("all had their turn in %v: %s", time.Since(start.at).Round(time.Millisecond), q.place.since(start))
	q.requireInOrder(t)
	for waiter, turns := range q.turns {
		require.Equal(t, 1, turns, "turns of waiter %d", waiter)
	}
}

// again has every waiter return as soon as it has had the key. After a while, they all leave. A
// waiter that returns at once has an advantage over those of other processes. So the test does not
// require that each waiter gets the key (guard.WithFair guarantees that). It requires that each
// key is used.
func (q *queue) again(t *testing.T) {
	clear(q.turns)
	before := q.writes()
	q.used.Store(0)
	for i := range q.resources {
		q.resources[i].left = time.Time{}
	}
	start := q.place.meter()
	over, end := context.WithCancel(context.Background())
	defer end()
	wait := q.all(func(waiter int) {
		for over.Err() == nil {
			if err := q.turn(over, waiter); err != nil && over.Err() == nil {
				t.Errorf("waiter %d: %v", waiter, err)
				return
			}
		}
	})
	time.Sleep(q.span) // in which they come and go
	require.Eventually(t, func() bool { return q.used.Load() == int64(q.keys) }, soon, 10*time.Millisecond, "some keys are not used")
	spent, ended := q.place.since(start), time.Now()
	end()
	wait()
	left := time.Since(ended)
	q.requireInOrder(t)
	sum, none := 0, 0
	for _, turns := range q.turns {
		sum += turns
		if turns == 0 {
			none++
		}
	}
	t.Logf("%d turns in %v, none for %d of %d waiters: %s", sum, ended.Sub(start.at).Round(time.Millisecond), none, q.waiters(), spent)
	t.Logf("a hand-off: %v (median), %v (99 of a hundred); all had left %v after the time was up",
		q.handOffs.percentile(50), q.handOffs.percentile(99), left.Round(time.Millisecond))
	require.Equal(t, sum, q.writes()-before, "every turn has written")
	require.Less(t, left, soon)
}

// writes returns how many there were to all resources.
func (q *queue) writes() (n int) {
	for i := range q.resources {
		n += q.resources[i].writes
	}
	return n
}

// requireInOrder fails if there were two holders of a key at a time, or one whose fence was not
// above those before.
func (q *queue) requireInOrder(t *testing.T) {
	t.Helper()
	require.False(t, t.Failed())
	require.Equal(t, [2]int64{}, [2]int64{q.overlaps.Load(), q.stale.Load()}, "overlaps and stale fences of %d waiters", q.waiters())
}
