package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	longestTTL  = 250 * time.Millisecond
	longestKeep = 150 * time.Millisecond
)

// A worker takes leases in a loop and writes to the resource under them.
type worker struct {
	name    string
	process *process
	world   *world
	rng     *rand.Rand
}

func newWorker(p *process, number int) *worker {
	name := fmt.Sprintf("%s.%d", p.name, number)
	return &worker{name, p, p.world, p.world.rng(name)}
}

func (k *worker) loop() {
	for !k.world.calm() {
		time.Sleep(upTo(k.rng, 80*time.Millisecond))
		k.act()
	}
}

// crowd has some callers of the process want one key at nearly the same time, and not for long.
// Leases are handed off among them.
func (k *worker) crowd() {
	key := keys[k.rng.IntN(len(keys))]
	ttl := k.ttl()
	var all sync.WaitGroup
	for i := range 2 + k.rng.IntN(4) {
		one := k.another(i)
		all.Go(func() {
			time.Sleep(upTo(one.rng, 5*time.Millisecond))
			one.visitor(key, ttl)
		})
	}
	all.Wait()
}

// visitor takes the key for a moment.
func (k *worker) visitor(key string, ttl guard.Option) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second+upTo(k.rng, time.Second))
	defer cancel()
	ctx, mine := withAttempt(ctx)
	var b *belief
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		if !lease.Valid() {
			return errWork
		}
		b = k.world.beliefs.begin(ctx, k.name, lease)
		time.Sleep(upTo(k.rng, 3*time.Millisecond))
		if lease.Valid() {
			k.world.resource.write(b, lease)
		}
		return nil
	}, append(append(k.fair(), k.sharing()...), ttl, guard.WithWait(upTo(k.rng, time.Second)))...)
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	if b != nil {
		k.world.tally.runs.Add(1)
		k.world.beliefs.reported(b, k.mayMissLoss(b, mine), err)
	}
}

var errWork = errors.New("the work has failed")

// job takes one lease, by Do or by Acquire, and works under it.
func (k *worker) job() {
	key := keys[k.rng.IntN(len(keys))]
	ctx, cancel := context.WithCancel(context.Background())
	if chance(k.rng, 0.1) {
		ctx, cancel = context.WithTimeout(ctx, upTo(k.rng, time.Second))
	}
	defer cancel()
	ctx, mine := withAttempt(ctx)

	var b *belief
	var err error
	if chance(k.rng, 0.3) {
		b, err = k.acquire(ctx, key)
	} else {
		err = k.process.do(ctx, key, func(ctx context.Context) error {
			lease, _ := guard.FromContext(ctx)
			b = k.world.beliefs.begin(ctx, k.name, lease)
			return k.work(ctx, lease, b)
		}, k.options()...)
	}
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	if b == nil {
		if ends, ok := ctx.Deadline(); ok && time.Since(later(ends, k.process.stopped.get())) > 100*time.Millisecond {
			k.world.violate("I6", "%s has returned %v after its context ended", k.name, time.Since(ends))
		}
		return
	}
	k.world.tally.runs.Add(1)
	k.world.beliefs.reported(b, k.mayMissLoss(b, mine), err)
}

// acquire is job by Acquire.
func (k *worker) acquire(ctx context.Context, key string) (*belief, error) {
	lease, err := k.process.current().Acquire(ctx, key, k.options()...)
	if err != nil {
		return nil, err
	}
	b := k.world.beliefs.begin(lease.Context(), k.name, lease)
	if k.work(lease.Context(), lease, b) != nil {
		return b, lease.Release(ctx)
	}
	return b, lease.Complete(ctx)
}

// fair has some calls wait in the queue, and others not.
func (k *worker) fair() []guard.Option {
	if k.world.backend.queued && chance(k.rng, 0.4) {
		return []guard.Option{guard.WithFair()}
	}
	return nil
}

func (k *worker) options() []guard.Option {
	opts := []guard.Option{k.ttl()}
	if chance(k.rng, 0.5) {
		opts = append(opts, guard.WithWait(upTo(k.rng, time.Second)))
	}
	if k.world.nodes == nil && chance(k.rng, 0.1) {
		opts = append(opts, guard.WithOnce(upTo(k.rng, longestKeep)))
	}
	if chance(k.rng, 0.1) {
		opts = append(opts, guard.WithMinHold(upTo(k.rng, longestKeep)))
	}
	if chance(k.rng, 0.1) {
		opts = append(opts, guard.WithMaxHold(longestKeep+upTo(k.rng, time.Second)))
	}
	if chance(k.rng, 0.2) {
		opts = append(opts, guard.WithoutRenewal())
	}
	return append(append(opts, k.fair()...), k.sharing()...)
}

// work works for less or more than the TTL, and writes now and then while the lease is valid. At
// times the process is paused between the question and the write, and at times it does not heed
// its context.
func (k *worker) work(ctx context.Context, lease *guard.Lease, b *belief) error {
	ends := time.Now().Add(upTo(k.rng, 100*time.Millisecond))
	if chance(k.rng, 0.4) {
		ends = ends.Add(upTo(k.rng, 2*longestTTL))
	}
	deaf := chance(k.rng, 0.2)
	for time.Now().Before(ends) && (deaf || ctx.Err() == nil) {
		time.Sleep(upTo(k.rng, 60*time.Millisecond))
		if !lease.Valid() {
			continue
		}
		if late := time.Since(b.deadline()); late > 0 {
			k.world.violate("I3", "%s: the lease on %s is valid %v after its deadline", k.name, b.Key, late)
		}
		if b.outslept(k.world) {
			k.world.violate("I3", "%s: the lease on %s is valid after its host was suspended", k.name, b.Key)
		}
		k.step()
		if chance(k.rng, 0.05) {
			time.Sleep(upTo(k.rng, 2*longestTTL))
		}
		k.world.resource.write(b, lease)
	}
	if chance(k.rng, 0.2) {
		return errWork
	}
	return nil
}

// visit takes each key once, now that nothing goes wrong any more.
func (k *worker) visit() {
	for _, key := range keys {
		ctx, cancel := context.WithTimeout(context.Background(), k.world.settled())
		err := guard.ErrDone
		for errors.Is(err, guard.ErrDone) {
			time.Sleep(upTo(k.rng, 50*time.Millisecond))
			err = k.process.do(ctx, key, func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				k.world.beliefs.begin(ctx, k.name, lease)
				return nil
			}, append(append(k.fair(), k.sharing()...), guard.WithWait(guard.Forever), guard.WithTTL(longestTTL))...)
		}
		cancel()
		if err != nil {
			k.world.violate("I9", "%s does not get %s after all is well: %v", k.name, key, err)
		}
	}
}

// mayMissLoss reports whether the worker need not be notified that b was lost: the lease was
// handed off, or the process has crashed.
func (k *worker) mayMissLoss(b *belief, mine *attempt) bool {
	return mine.handedOff.Load() || !k.process.ended.get().Before(b.begun)
}
