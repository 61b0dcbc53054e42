package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
)

// replies are the answers of nodes to one question, by the index of the node.
type replies[T any] struct {
	values   []T
	errs     []error // errSilent of a node that has not answered, nil of one that was not asked
	pending  int     // nodes that have not answered
	answered int     // nodes that have answered without an error
	failed   int
}

// A decision says whether the replies so far are enough. If they are, but more would add
// information, it returns how long to wait for those at most. late means that this time has passed.
type decision[T any] func(r *replies[T], late bool) (enough bool, patience time.Duration)

// gather asks the nodes at once. prepare returns the function that asks one of them. That function
// must not block, and done is called with its answer, from any goroutine. gather returns the
// replies when all nodes have answered, when they are enough, or when ctx has ended. The requests
// then go on, until longest has passed.
func gather[T any](
	ctx context.Context, l *Locker, nodes []*node, longest time.Duration,
	prepare func(ctx context.Context, done func(*node, T, error)) (ask func(*node)), enough decision[T],
) *replies[T] {
	r := &replies[T]{values: make([]T, len(l.nodes)), errs: make([]error, len(l.nodes)), pending: len(nodes)}
	for _, n := range nodes {
		r.errs[n.index] = errSilent
	}
	var mu sync.Mutex
	over := false
	w := l.newWaiter()
	defer l.waiters.Put(w)
	isEnough := func(late bool) (bool, time.Duration) {
		if r.pending == 0 {
			return true, 0
		}
		return enough(r, late)
	}
	call := &callContext{}
	call.begin(ctx, longest, len(nodes))
	done := func(n *node, value T, err error) {
		defer call.answered()
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		r.add(n, value, err)
		if yes, patience := isEnough(false); yes || patience > 0 {
			w.wake()
		}
	}
	ask := prepare(call, done)
	for _, n := range nodes {
		ask(n)
	}
	w.wait(ctx, func(late bool) (bool, time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		return isEnough(late)
	})
	mu.Lock()
	defer mu.Unlock()
	over = true
	return r
}

func (r *replies[T]) add(n *node, value T, err error) {
	r.values[n.index], r.errs[n.index] = value, err
	r.pending--
	if err != nil {
		r.failed++
	} else {
		r.answered++
	}
}

// each returns a question to a node that is asked in a goroutine.
func each[T any](ask func(context.Context, *node) (T, error)) func(context.Context, func(*node, T, error)) func(*node) {
	return func(ctx context.Context, done func(*node, T, error)) func(*node) {
		return func(n *node) {
			go contain.Call(func() (T, error) { return ask(ctx, n) }, func(value T, err error) { done(n, value, err) })
		}
	}
}

// glance is how long a caller waits for the nodes before it watches its context, too. Most answers
// come sooner, and the Done channel of a Guard's call costs a timer.
const glance = 20 * time.Millisecond

// A waiter is a caller that waits for nodes. It is used for one call after the other. A late wake
// of an earlier call does no harm.
type waiter struct {
	ready chan struct{}
	soon  *time.Timer
}

func (l *Locker) newWaiter() *waiter {
	if w, ok := l.waiters.Get().(*waiter); ok {
		return w
	}
	return &waiter{ready: make(chan struct{}, 1), soon: time.NewTimer(glance)}
}

// wake has the waiter ask again whether it has enough.
func (w *waiter) wake() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// wait returns when there is enough, or when ctx has ended. enough is called at once, after each
// wake, and when the patience that it has asked for has passed: late is true from then on. Slow
// nodes get more patience.
func (w *waiter) wait(ctx context.Context, enough func(late bool) (bool, time.Duration)) {
	start := time.Now()
	w.soon.Reset(glance)
	defer w.soon.Stop()
	var ended <-chan struct{}
	var timeout <-chan time.Time
	longest, late := time.Duration(0), false
	for {
		yes, patience := enough(late)
		if yes {
			return
		}
		if patience > longest {
			longest = patience
			timer := time.NewTimer(patience + 2*time.Since(start))
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-w.ready:
		case <-timeout:
			late = true
		case <-w.soon.C:
			ended = ctx.Done()
		case <-ended:
			return
		}
	}
}
