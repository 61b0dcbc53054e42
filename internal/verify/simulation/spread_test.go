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

// asyncSpreader is a spreader around a Locker whose calls answer later.
type asyncSpreader struct {
	spreader
	facts driver.Description
	async driver.Async
}

func spread(w *world, name string, l guard.Locker) guard.Locker {
	s := spreader{driver.Wrapper{Locker: l}, w, name}
	if async, ok := l.(driver.Async); ok {
		return asyncSpreader{s, driver.Describe(l), async}
	}
	return s
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

func (s spreader) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	s.sleep("release", c)
	defer s.sleep("released", c)
	return s.Locker.Release(ctx, c, after)
}

func (s asyncSpreader) Describe() driver.Description {
	facts := s.facts
	if facts.ServerID != nil {
		facts.ServerID = func(ctx context.Context) (string, error) {
			s.sleep("identify", driver.Claim{})
			defer s.sleep("identified", driver.Claim{})
			return s.facts.ServerID(ctx)
		}
	}
	return facts
}

func (s asyncSpreader) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	go func() {
		s.sleep(string(op), claims[0])
		s.async.Start(ctx, op, claims, after, func(i int, a driver.Answer, err error) {
			go func() {
				s.sleep(string(op)+"d", claims[i])
				done(i, a, err)
			}()
		})
	}()
}
