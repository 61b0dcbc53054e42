package simulation_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A queue is the calls of a process that wait for a key, in the order in which they came.
type queue struct {
	world *world

	mu      sync.Mutex
	waiting map[string][]*waiter
}

type waiter struct {
	name string
	ctx  context.Context
}

// arrive notes that a call comes.
func (q *queue) arrive(ctx context.Context, key, name string) *waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := &waiter{name, ctx}
	q.waiting[key] = append(q.waiting[key], w)
	return w
}

// served checks that no earlier call still waits.
func (q *queue) served(key string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, other := range q.waiting[key] {
		if other == w {
			break
		}
		if other.ctx.Err() == nil {
			q.world.violate("order", "%s has %s before %s, which came earlier", w.name, key, other.name)
		}
	}
	q.remove(key, w)
}

func (q *queue) leave(key string, w *waiter) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(key, w)
}

func (q *queue) remove(key string, w *waiter) {
	q.waiting[key] = slices.DeleteFunc(q.waiting[key], func(other *waiter) bool { return other == w })
}

// queue has callers of the process wait in the queue for one key. Some leave, also from its head.
func (k *worker) queue() {
	key, ttl := keys[k.rng.IntN(len(keys))], k.ttl()
	var all sync.WaitGroup
	for i := range 3 + k.rng.IntN(5) {
		one := k.another(i)
		stay := 2 * time.Second
		if chance(k.rng, 0.4) {
			stay = upTo(k.rng, 100*time.Millisecond)
		}
		all.Go(func() {
			time.Sleep(upTo(one.rng, 10*time.Millisecond))
			_ = one.waitInQueue(key, stay, ttl, guard.WithWait(guard.Forever))
		})
	}
	all.Wait()
}

// waitInQueue waits for the key and holds it for a moment, or leaves after a while.
func (k *worker) waitInQueue(key string, stay time.Duration, opts ...guard.Option) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := time.Now().Add(stay)
	time.AfterFunc(stay, cancel)
	ctx, mine := withAttempt(ctx)
	place := k.process.queue.arrive(ctx, key, k.name)
	var b *belief
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		k.process.queue.served(key, place)
		// not at the very instant at which another ends
		time.Sleep(upTo(k.rng, 100*time.Microsecond))
		lease, _ := guard.FromContext(ctx)
		if !lease.Valid() {
			return errWork
		}
		b = k.world.beliefs.begin(ctx, k.name, lease)
		time.Sleep(upTo(k.rng, 5*time.Millisecond))
		if lease.Valid() {
			k.world.resource.write(b, lease)
		}
		return nil
	}, opts...)
	k.process.queue.leave(key, place)
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	k.typed(key, err)
	if b != nil {
		k.world.tally.runs.Add(1)
		k.world.beliefs.reported(b, mine.handedOff.Load(), err)
	} else if late := time.Since(later(left, k.process.stopped.get())); late > 100*time.Millisecond {
		k.world.violate("I6", "%s has returned %v after it was to leave", k.name, late)
	}
	return err
}

// queueAfterFaults has some callers wait in the queue, after the last fault. The first one leaves,
// and the others still get the key.
func (k *worker) queueAfterFaults() {
	var all sync.WaitGroup
	for i := range 3 {
		one := k.another(i)
		stay := k.world.settled()
		if i == 0 {
			stay = upTo(k.rng, 5*time.Millisecond)
		}
		time.Sleep(upTo(k.rng, time.Millisecond))
		all.Go(func() {
			err := one.waitInQueue(keys[0], stay, guard.WithTTL(longestTTL), guard.WithWait(guard.Forever))
			for i > 0 && errors.Is(err, guard.ErrDone) { // of a job from before the last fault
				time.Sleep(upTo(one.rng, 50*time.Millisecond))
				err = one.waitInQueue(keys[0], stay, guard.WithTTL(longestTTL), guard.WithWait(guard.Forever))
			}
			if i > 0 && err != nil && !errors.Is(err, errWork) {
				one.world.violate("I4", "%s waits behind a caller that has left, and does not get %s: %v", one.name, keys[0], err)
			}
		})
	}
	all.Wait()
}
