package simulation_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// severalKeys are those of calls for several keys.
var severalKeys = append(keys[:len(keys):len(keys)], "k2")

// longestWait is how long a writer waits at most while others share the key without end: until
// the writer asks, and is wanted, for those that are there by then, and until it asks again.
const longestWait = time.Second

// limit is how many the process lets hold a key: a deploy has changed it.
func (p *process) limit() guard.Option {
	return guard.WithLimit([][]int{{2, 3, 5}, {4, 2, guard.MaxSeats + 1}}[p.world.seed%2][p.number])
}

// sharing returns how a call holds its key in a world in which keys are shared.
func (k *worker) sharing() []guard.Option {
	x := k.rng.Float64()
	switch {
	case k.world.nodes == nil:
		return nil
	case x < map[cast]float64{readers: 0.35, limits: 0.2, several: 0.5}[k.world.cast]:
		return nil // alone
	}
	return []guard.Option{k.together()}
}

// together returns an option by which others may hold the key meanwhile.
func (k *worker) together() guard.Option {
	if k.world.isQuorum() || chance(k.rng, map[cast]float64{readers: 1, limits: 0.2, several: 0.5}[k.world.cast]) {
		return guard.WithShared()
	}
	return k.process.limit()
}

// upgrade asks for a key alone while it shares it, which must not wait for itself.
func (k *worker) upgrade() {
	key := keys[k.rng.IntN(len(keys))]
	ctx, mine := withAttempt(context.Background())
	var b *belief
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		b = k.world.beliefs.begin(ctx, k.name, lease)
		begin := time.Now()
		err := k.process.current().Do(ctx, key, func(context.Context) error { return nil }, guard.WithWait(guard.Forever))
		if lease.Valid() && !errors.Is(err, guard.ErrUpgrade) && !errors.Is(err, guard.ErrClosed) || time.Since(begin) > 0 {
			k.world.violate("upgrade", "%s shares %s, asks for it alone, and gets %v after %v", k.name, key, err, time.Since(begin))
		}
		return k.work(ctx, lease, b)
	}, k.together(), k.ttl(), guard.WithWait(upTo(k.rng, time.Second)))
	k.ended(key, []*belief{b}, mine, err)
}

// ended checks the result of a call that has begun these beliefs, or none.
func (k *worker) ended(key string, all []*belief, mine *attempt, err error) {
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	k.typed(key, err)
	for _, b := range all {
		if b != nil {
			k.world.tally.runs.Add(1)
			k.world.beliefs.reported(b, k.mayMissLoss(b, mine), err)
		}
	}
}

// all takes two or three keys at once, in any order, by DoAll or by AcquireAll.
func (k *worker) all() {
	ctx, cancel := context.WithCancel(context.Background())
	if chance(k.rng, 0.1) {
		ctx, cancel = context.WithTimeout(ctx, upTo(k.rng, time.Second))
	}
	defer cancel()
	how := append(k.sharing(), k.ttl())
	more := k.fair()
	if chance(k.rng, 0.6) {
		more = append(more, guard.WithWait(upTo(k.rng, time.Second)))
	}
	if chance(k.rng, 0.1) {
		more = append(more, guard.WithMaxHold(longestKeep+upTo(k.rng, time.Second)))
	}
	if chance(k.rng, 0.2) {
		more = append(more, guard.WithoutRenewal())
	}
	_ = k.takeAll(ctx, how, more...)
	if ends, ok := ctx.Deadline(); ok && time.Since(later(ends, k.process.stopped.get())) > 2*longestTTL {
		k.world.violate("I6", "%s has returned %v after its context ended", k.name, time.Since(ends))
	}
}

// around takes several keys, of which it holds one already, or fails to. It goes on with the one.
func (k *worker) around() {
	key, how := severalKeys[k.rng.IntN(len(severalKeys))], k.sharing()
	ctx, mine := withAttempt(context.Background())
	var b *belief
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		b = k.world.beliefs.begin(ctx, k.name, lease)
		inner, cancel := context.WithTimeout(ctx, upTo(k.rng, 50*time.Millisecond))
		defer cancel()
		var ends atomic.Int64
		after := k.rng.Int64N(6) // more than there are keys
		hook := guard.Hook{AcquireEnd: func(context.Context, guard.AcquireEvent) {
			if ends.Add(1) == after {
				cancel()
			}
		}}
		_ = k.process.current().DoAll(inner, severalKeys, func(context.Context) error { return nil }, append(how, k.ttl(), guard.WithHook(hook))...)
		k.world.beliefs.sees(b, lease)
		return k.work(ctx, lease, b)
	}, append(how, k.ttl(), guard.WithWait(upTo(k.rng, time.Second)))...)
	k.ended(key, []*belief{b}, mine, err)
}

// takeAll takes some of severalKeys and works under their leases.
func (k *worker) takeAll(ctx context.Context, how []guard.Option, more ...guard.Option) error {
	var some []string
	for _, i := range k.rng.Perm(len(severalKeys))[:2+k.rng.IntN(2)] {
		some = append(some, severalKeys[i])
	}
	ctx, mine := withAttempt(ctx)
	g, opts := k.process.current(), slices.Concat(how, more)
	var bs []*belief
	var err error
	if chance(k.rng, 0.3) {
		var all *guard.Leases
		if all, err = g.AcquireAll(ctx, some, opts...); err == nil {
			_ = k.underAll(all.Context(), g, some, how, &bs)
			err = all.Release(ctx)
		}
	} else {
		err = g.DoAll(ctx, some, func(ctx context.Context) error { return k.underAll(ctx, g, some, how, &bs) }, opts...)
	}
	k.ended(some[0]+" and others", bs, mine, err)
	return err
}

// underAll works under leases on all of the keys, which ctx holds.
func (k *worker) underAll(ctx context.Context, g *guard.Guard, some []string, how []guard.Option, bs *[]*belief) error {
	var leases []*guard.Lease
	fence := guard.Fence(ctx)
	for _, key := range some {
		lease, err := g.Acquire(ctx, key, how...) // joins the lease
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, guard.ErrLost) && !errors.Is(err, guard.ErrClosed) {
				k.world.violate("all", "%s is to hold %v, and not %s: %v", k.name, some, key, err)
			}
			return errWork
		}
		if fence > 0 && lease.Fence() != fence { // else each key has its own
			k.world.violate("all", "%s holds %v under fences %d and %d", k.name, some, fence, lease.Fence())
		}
		leases = append(leases, lease)
		*bs = append(*bs, k.world.beliefs.begin(ctx, k.name, lease))
	}
	ends := time.Now().Add(upTo(k.rng, 2*longestTTL))
	for time.Now().Before(ends) && ctx.Err() == nil {
		time.Sleep(upTo(k.rng, 60*time.Millisecond))
		if slices.ContainsFunc(leases, func(l *guard.Lease) bool { return !l.Valid() }) {
			continue
		}
		for i, b := range *bs {
			if late := time.Since(b.deadline()); late > 0 {
				k.world.violate("I3", "%s: the lease on %s is valid %v after its deadline", k.name, b.Key, late)
			}
			k.world.resource.write(b, leases[i])
		}
	}
	if chance(k.rng, 0.2) {
		return errWork
	}
	return nil
}

// shareAll takes several keys again and again with all the others, now that nothing goes wrong any
// more: nobody is blocked for ever.
func (k *worker) shareAll() {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*k.world.settled())
		err := errWork
		for errors.Is(err, errWork) {
			err = k.takeAll(ctx, append(k.sharing(), guard.WithTTL(longestTTL)), append(k.fair(), guard.WithWait(guard.Forever))...)
		}
		cancel()
		if err != nil {
			k.world.violate("I9", "%s does not get several keys after all is well: %v", k.name, err)
		}
	}
}

// flow has a worker want a key alone while all others share it without end, now that nothing goes
// wrong any more.
func (w *world) flow(crew []*worker) {
	ctx, stop := context.WithCancel(context.Background())
	key, writer := keys[0], crew[0]
	others := crew[1:]
	if w.cast != readers {
		// A Guard serves its calls in order. Before the writer, it may have one with a larger limit
		// than those of other processes, to which nothing is promised.
		others = crew[workers:]
	}
	var all sync.WaitGroup
	for _, k := range others {
		for i := range 2 { // calls that have one lease, if they come in time
			one := k.another(i)
			all.Go(func() { one.keepSharing(ctx, key) })
		}
	}
	for range 3 {
		time.Sleep(200 * time.Millisecond)
		w.trace.add("%s wants %s alone", writer.name, key)
		begin := time.Now()
		wait, cancel := context.WithTimeout(ctx, 5*longestWait)
		err := writer.hold(wait, key, time.Millisecond)
		cancel()
		if waited := time.Since(begin); err != nil || waited > longestWait {
			w.violate("starved", "%s waits for %s for %v while others share it: %v", writer.name, key, waited, err)
		}
	}
	stop()
	all.Wait()
	time.Sleep(2 * longestTTL) // until what the last have asked for has arrived, and is released
}

// keepSharing shares the key again and again.
func (k *worker) keepSharing(ctx context.Context, key string) {
	for ctx.Err() == nil {
		err := k.hold(ctx, key, 30*time.Millisecond, k.together())
		if err != nil && ctx.Err() == nil {
			k.world.violate("I9", "%s does not share %s after all is well: %v", k.name, key, err)
		}
	}
}

// hold waits for the key and holds it for a time. In some worlds, some calls respect the queue of
// the store, and have leases of their own.
func (k *worker) hold(ctx context.Context, key string, atMost time.Duration, opts ...guard.Option) error {
	how := []guard.Option{guard.WithTTL(longestTTL), guard.WithWait(guard.Forever)}
	if k.world.seed%5 == 0 {
		how = append(how, k.fair()...)
	}
	return k.process.do(ctx, key, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		b := k.world.beliefs.begin(ctx, k.name, lease)
		time.Sleep(upTo(k.rng, atMost))
		if lease.Valid() {
			k.world.resource.write(b, lease)
		}
		return nil
	}, append(opts, how...)...)
}

// noTrace has a writer give up while another call shares the key: further calls share it then.
func (w *world) noTrace(crew []*worker) {
	ctx, key := context.Background(), keys[0]
	holder, gives, other := crew[0], crew[workers], crew[2*workers]
	how := holder.together()
	lease, err := holder.process.current().Acquire(ctx, key, how)
	if err != nil {
		w.violate("I9", "%s does not share %s after all is well: %v", holder.name, key, err)
		return
	}
	err = gives.process.do(ctx, key, func(context.Context) error { return nil }, guard.WithWait(30*time.Millisecond))
	if !errors.Is(err, guard.ErrBusy) {
		w.violate("I1", "%s has %s alone, which %s holds: %v", gives.name, key, holder.name, err)
	}
	time.Sleep(5 * time.Millisecond)
	if err := other.process.do(ctx, key, func(context.Context) error { return nil }, other.together()); err != nil {
		w.violate("left", "%s does not share %s, when nobody waits for it any more: %v", other.name, key, err)
	}
	_ = lease.Release(ctx)
}

// allOrNone has a worker want several keys of which one is held: it takes none.
func (w *world) allOrNone(crew []*worker) {
	holder, wants, other := crew[0].process.current(), crew[workers].process.current(), crew[2*workers].process.current()
	ctx := context.Background()
	for _, held := range severalKeys {
		lease, err := holder.Acquire(ctx, held)
		if err != nil {
			w.violate("all", "%s is not free: %v", held, err)
			continue
		}
		if all, err := wants.AcquireAll(ctx, severalKeys); !errors.Is(err, guard.ErrBusy) {
			w.violate("all", "several keys are granted, and %s is held: %v, %v", held, all, err)
		}
		for _, key := range severalKeys {
			err := other.Do(ctx, key, func(context.Context) error { return nil })
			if key != held && err != nil {
				w.violate("all", "%s is taken by a call that did not get %s: %v", key, held, err)
			}
		}
		_ = lease.Release(ctx)
	}
}
