package simulation_test

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A spreader is a Locker whose calls, and their answers, come at instants of their own, some
// microseconds late. Guards and quorums make several calls at one instant, which may also fail at
// one instant, with that of a context: whichever the runtime took first would be the first in a
// queue, get the next random number, or decide a ballot.
type spreader struct {
	driver.Wrapper
	world *world
	name  string
}

// batchSpreader is a spreader around a Locker that renews in batches.
type batchSpreader struct {
	spreader
	batch driver.BatchRenewer
}

// nodeSpreader is a batchSpreader around a Locker on one Redis.
type nodeSpreader struct {
	batchSpreader
	facts   driver.Description
	starter driver.Starter
	several driver.BatchAcquirer
}

func spread(w *world, name string, l guard.Locker) guard.Locker {
	s := spreader{driver.Wrapper{Locker: l}, w, name}
	renewer, ok := l.(driver.BatchRenewer)
	if !ok {
		return s
	}
	batch := batchSpreader{s, renewer}
	if starter, ok := l.(driver.Starter); ok {
		return nodeSpreader{batch, driver.Describe(l), starter, l.(driver.BatchAcquirer)}
	}
	return batch
}

// sleep sleeps for a time that depends on the claim, and not on the order in which goroutines run.
func (s spreader) sleep(op string, c driver.Claim) {
	time.Sleep(upTo(s.world.rng(s.name+op+c.ID+time.Now().String()), 200*time.Microsecond))
}

func (s spreader) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	s.sleep("acquire", c)
	defer s.sleep("acquired", c)
	return s.Locker.TryAcquire(ctx, c)
}

func (s spreader) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	s.sleep("renew", c)
	defer s.sleep("renewed", c)
	return s.Locker.Renew(ctx, c)
}

func (s batchSpreader) RenewBatch(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
	s.sleep("renew", claims[0])
	s.batch.RenewBatch(ctx, claims, func(i int, held bool, err error) {
		s.sleep("renewed", claims[i])
		report(i, held, err)
	})
}

func (s spreader) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	s.sleep("release", c)
	defer s.sleep("released", c)
	return s.Locker.Release(ctx, c, after)
}

func (s nodeSpreader) Describe() driver.Description {
	facts := s.facts
	facts.ServerID = func(ctx context.Context) (string, error) {
		s.sleep("identify", driver.Claim{})
		defer s.sleep("identified", driver.Claim{})
		return s.facts.ServerID(ctx)
	}
	return facts
}

func (s nodeSpreader) AcquireBatch(ctx context.Context, claims []driver.Claim, report func(int, driver.Answer, error)) {
	s.sleep("acquire", claims[0])
	s.several.AcquireBatch(ctx, claims, func(i int, grant driver.Answer, err error) {
		s.sleep("acquired", claims[i])
		report(i, grant, err)
	})
}

func (s nodeSpreader) ReleaseBatch(ctx context.Context, claims []driver.Claim, report func(int, bool, error)) {
	s.sleep("release", claims[0])
	s.several.ReleaseBatch(ctx, claims, func(i int, held bool, err error) {
		s.sleep("released", claims[i])
		report(i, held, err)
	})
}

func (s nodeSpreader) StartAcquire(ctx context.Context, c driver.Claim, done func(driver.Answer, error)) {
	go func() {
		s.sleep("acquire", c)
		s.starter.StartAcquire(ctx, c, func(g driver.Answer, err error) {
			go func() {
				s.sleep("acquired", c)
				done(g, err)
			}()
		})
	}()
}

func (s nodeSpreader) StartRelease(ctx context.Context, c driver.Claim, after driver.After, done func(bool, error)) {
	go func() {
		s.sleep("release", c)
		s.starter.StartRelease(ctx, c, after, func(held bool, err error) {
			go func() {
				s.sleep("released", c)
				done(held, err)
			}()
		})
	}()
}
