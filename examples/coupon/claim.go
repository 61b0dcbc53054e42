package main

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	coupon   = "spring"
	stockKey = "coupon:" + coupon

	// thinking is how long a server looks at the stock before it writes it back.
	thinking = 2 * time.Millisecond
)

// newGuard is all that it takes: every server makes one, over the same Redis. The locker is single.New(client), or
// what else -backend names, see stage.Backend.
func (s *server) newGuard(locker guard.Locker) (*guard.Guard, error) {
	return guard.New(locker,
		guard.WithNamespace(s.Namespace), // other runs use this Redis, too
		guard.WithLabel(s.Name),          // what those read who find a key busy
		guard.WithTTL(2*time.Second),     // how soon another may go on when a server has died or hangs
	)
}

// claim gives the user a coupon, or returns why not.
func (s *server) claim(ctx context.Context, user string) error {
	if !s.Guarded {
		return s.takeOne(ctx, user)
	}
	// The user comes first, once: a second click finds the first one busy or done, without waiting for the stock.
	return s.guard.Do(ctx, "claim:"+coupon+":"+user, func(ctx context.Context) error {
		// The stock is for one at a time. Whoever waits in vain for two seconds is told to try again.
		return s.guard.Do(ctx, stockKey, func(ctx context.Context) error {
			return s.takeOne(ctx, user)
		}, guard.WithWait(2*time.Second))
	}, guard.WithOnce(time.Hour))
}

// takeOne takes a coupon out of the stock as programs do: it reads, decides, and writes back. Two that do so
// at the same time read the same figure, and both write back one less.
func (s *server) takeOne(ctx context.Context, user string) error {
	remaining, err := s.db.read(ctx, user)
	if err != nil {
		return err
	}
	if err := s.think(ctx, remaining); err != nil {
		return err
	}
	// By now the lease may have been lost, as this process may have been frozen. No check here could
	// rule that out (guard.Lease.Valid would find out most times): it might be frozen right after the
	// check. So the fence goes with the write, and the database refuses it if it is not the highest.
	//
	// The write does not end with ctx, which ends when the lease is lost, to show just that: a
	// statement that was on its way before could not be stopped either.
	return s.db.write(context.WithoutCancel(ctx), sale{
		user: user, server: s.Name, remaining: remaining - 1, fence: guard.Fence(ctx),
	})
}
