package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/internal/lazyctx"
)

// A reply is the answer of a node to a question.
type reply[T any] struct {
	node  *node
	value T
	err   error
}

// A gathering collects the replies of nodes to one question.
type gathering[T any] struct {
	expected int // replies

	mu      sync.Mutex
	got     []reply[T]  // in the order of their arrival
	room    [5]reply[T] // so that few replies need no slice of their own
	least   int         // see wakeAt
	then    func(reply[T])
	changed chan struct{} // wakes wait
}

// A decision says whether the replies so far are enough. If they are, but more would add
// information, it returns how long to wait for those at most. late means that this time has passed.
type decision[T any] func(got []reply[T], late bool) (enough bool, grace time.Duration)

// everyone is the decision to wait for all replies.
func everyone[T any]([]reply[T], bool) (enough bool, grace time.Duration) { return false, 0 }

func newGathering[T any](expected int) *gathering[T] {
	g := &gathering[T]{expected: expected, least: expected, changed: make(chan struct{}, 1)}
	g.got = g.room[:0]
	return g
}

// gather asks the nodes at once, each in a goroutine. See detach and wait.
func gather[T any](
	ctx context.Context, nodes []*node, longest time.Duration, call func(context.Context, *node) (T, error), enough decision[T],
) []reply[T] {
	g, calls := newGathering[T](len(nodes)), detach(ctx, longest, len(nodes))
	for _, n := range nodes {
		go contain.Call(func() (T, error) { return call(calls, n) }, func(value T, err error) {
			g.add(reply[T]{node: n, value: value, err: err})
			calls.ended()
		})
	}
	return g.wait(ctx, 1, enough)
}

// detached is the context of calls that go on after their caller has left. It ends with the last of
// them.
type detached struct {
	lazyctx.Context
	open atomic.Int32
}

// detach returns the context of some calls. It has the values of ctx, and ends at the deadline of
// ctx, or after longest if that is sooner.
func detach(ctx context.Context, longest time.Duration, calls int) *detached {
	end := time.Now().Add(longest)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	d := &detached{}
	d.InitCall(context.WithoutCancel(ctx), end, 0)
	d.open.Store(int32(calls))
	return d
}

func (d *detached) ended() {
	if d.open.Add(-1) == 0 {
		d.End(nil)
	}
}

// add adds a reply, and returns those so far.
func (g *gathering[T]) add(r reply[T]) []reply[T] {
	g.mu.Lock()
	g.got = append(g.got, r)
	got, then, wakes := g.got, g.then, len(g.got) >= g.least
	g.mu.Unlock()
	if wakes {
		select {
		case g.changed <- struct{}{}:
		default:
		}
	}
	if then != nil {
		then(r)
	}
	return got
}

// replies returns those so far.
func (g *gathering[T]) replies() []reply[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.got
}

// handle has a function called with each reply from now on, in the goroutine of the node's call. It
// returns the replies before that. prepare gets these, too, and returns the function.
func (g *gathering[T]) handle(prepare func(got []reply[T]) func(reply[T])) []reply[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.then = prepare(g.got)
	return g.got
}

// glance is how long a caller waits for the nodes before it watches its context, too. Most answers
// come sooner, and the Done channel of a Guard's call costs more than the rest of the wait.
const glance = 20 * time.Millisecond

// wait returns the replies when all have come, when they are enough, or when ctx has ended. Fewer
// than least are mostly not enough, so it looks at them only after the glance. Slow nodes get more
// time than the decision asks for.
func (g *gathering[T]) wait(ctx context.Context, least int, enough decision[T]) []reply[T] {
	g.wakeAt(least)
	start := time.Now()
	soon := time.NewTimer(glance)
	defer soon.Stop()
	var ended <-chan struct{}
	var timeout <-chan time.Time
	longest, late := time.Duration(0), false
	for {
		got := g.replies()
		yes, grace := enough(got, late)
		if yes || len(got) == g.expected {
			return got
		}
		if grace > longest {
			longest = grace
			timer := time.NewTimer(grace + 2*time.Since(start))
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-g.changed:
		case <-timeout:
			late = true
		case <-soon.C:
			ended = ctx.Done()
			g.wakeAt(1)
		case <-ended:
			return got
		}
	}
}

// wakeAt has wait look at the replies only when there are that many.
func (g *gathering[T]) wakeAt(least int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.least = least
}

// known returns the answers without an error.
func known[T any](got []reply[T]) (values []T) {
	for _, r := range got {
		if r.err == nil {
			values = append(values, r.value)
		}
	}
	return values
}

// answered returns how many of the replies are no errors.
func answered[T any](got []reply[T]) int { return len(known(got)) }
