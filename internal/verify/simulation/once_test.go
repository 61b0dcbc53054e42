package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// onceKeys are those of work that is done once in a window, holdKeys those of work with a minimum
// hold.
var onceKeys, holdKeys = []string{"once0", "once1"}, []string{"hold0"}

// longestWindow is longer than runs take, and short enough that work is done several times.
const longestWindow = 400 * time.Millisecond

// once has a key's work done, unless it was in its window.
func (k *worker) once() {
	opts := []guard.Option{k.ttl()}
	if chance(k.rng, 0.5) {
		opts = append(opts, guard.WithWait(upTo(k.rng, time.Second)))
	}
	_ = k.doOnce(context.Background(), onceKeys[k.rng.IntN(len(onceKeys))], 50*time.Millisecond+upTo(k.rng, longestWindow), opts...)
}

// onceInACrowd has some callers of the process wait for work that one of them, or of others, does.
func (k *worker) onceInACrowd() {
	key, ttl := onceKeys[k.rng.IntN(len(onceKeys))], k.ttl()
	window := 50*time.Millisecond + upTo(k.rng, longestWindow)
	var all sync.WaitGroup
	for i := range 2 + k.rng.IntN(3) {
		one := k.another(i)
		all.Go(func() {
			time.Sleep(upTo(one.rng, 5*time.Millisecond))
			_ = one.doOnce(context.Background(), key, window, ttl, guard.WithWait(upTo(one.rng, time.Second)))
		})
	}
	all.Wait()
}

// doOnce does a key's work under a done marker, and checks the result.
func (k *worker) doOnce(ctx context.Context, key string, window time.Duration, opts ...guard.Option) error {
	ctx, mine := withAttempt(ctx)
	var b *belief
	var ended time.Time
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		// not at the very instant at which another ends
		time.Sleep(upTo(k.rng, 100*time.Microsecond))
		lease, _ := guard.FromContext(ctx)
		if !lease.Valid() {
			return errWork
		}
		b = k.world.beliefs.begin(ctx, k.name, lease)
		k.world.spans.begin(key, k.name, b.asked)
		time.Sleep(upTo(k.rng, 60*time.Millisecond))
		k.step()
		if lease.Valid() {
			k.world.resource.write(b, lease)
		}
		record := fmt.Sprintf("%s %d", k.name, lease.Fence())
		if err := lease.SetRecord([]byte(record)); err != nil {
			return err
		}
		if chance(k.rng, 0.2) {
			return errWork
		}
		k.world.spans.successful(key, record)
		ended = time.Now()
		return nil
	}, append(opts, guard.WithOnce(window))...)
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	k.typed(key, err)
	var done *guard.DoneError
	if errors.As(err, &done) {
		k.world.spans.checkDone(key, string(done.Record), k.name)
	}
	if err == nil {
		k.world.spans.close(key, span{"once", k.name + " had done it", ended, ended.Add(window)})
	}
	if b != nil {
		k.world.tally.runs.Add(1)
		k.world.beliefs.reported(b, mine.handedOff.Load(), err)
	}
	return err
}

// holdLong does short work that keeps its key for longer.
func (k *worker) holdLong() {
	key := holdKeys[k.rng.IntN(len(holdKeys))]
	hold := 20*time.Millisecond + upTo(k.rng, longestKeep)
	opts := append(k.fair(), k.ttl(), guard.WithMinHold(hold))
	if chance(k.rng, 0.5) {
		opts = append(opts, guard.WithWait(upTo(k.rng, time.Second)))
	}
	ctx, mine := withAttempt(context.Background())
	var b *belief
	err := k.process.do(ctx, key, func(ctx context.Context) error {
		time.Sleep(upTo(k.rng, 100*time.Microsecond))
		lease, _ := guard.FromContext(ctx)
		if !lease.Valid() {
			return errWork
		}
		b = k.world.beliefs.begin(ctx, k.name, lease)
		k.world.spans.begin(key, k.name, b.asked)
		time.Sleep(upTo(k.rng, 20*time.Millisecond))
		if lease.Valid() {
			k.world.resource.write(b, lease)
		}
		return nil
	}, opts...)
	k.world.trace.add("%s has ended with %s: %v", k.name, key, outcome(nil, err))
	k.typed(key, err)
	if b == nil {
		return
	}
	k.world.tally.runs.Add(1)
	k.world.beliefs.reported(b, mine.handedOff.Load(), err)
	if err == nil && !k.world.beliefs.isUnanswered(b) {
		k.world.spans.close(key, span{"hold", k.name + " began a minimum hold", b.begun, b.asked.Add(hold)})
	}
}

// doTogether has all workers do one thing once, after the last fault. One of them does it, and the
// others wait until they find that it is done.
func (k *worker) doTogether() {
	var all sync.WaitGroup
	for i := range 2 {
		one := k.another(i)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), one.world.settled())
			defer cancel()
			err := errWork
			for errors.Is(err, errWork) {
				time.Sleep(upTo(one.rng, 5*time.Millisecond))
				err = one.doOnce(ctx, "together", time.Hour, guard.WithTTL(longestTTL), guard.WithWait(guard.Forever))
			}
			switch {
			case err == nil:
				one.world.together.Add(1)
			case !errors.Is(err, guard.ErrDone):
				one.world.violate("once", "%s waits for what others do, and gets: %v", one.name, err)
			}
		})
	}
	all.Wait()
}
