package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

const (
	coupon   = "spring"
	stockKey = "coupon:" + coupon

	// The two kinds of work.
	nameClaim = "claim"
	nameStock = "stock"
)

// newGuard is all that it takes: every server makes one, over the same Redis. The locker is
// single.New(client), or what else -backend names, see stage.Backend.
func (s *server) newGuard(locker guard.Locker) (*guard.Guard, error) {
	return guard.New(locker,
		guard.WithNamespace(s.Namespace), // other runs use this Redis, too
		guard.WithLabel(s.Name),          // what those read who find a key busy
		// how soon another may go on when a server has died or hangs
		guard.WithTTL(2*time.Second),
		guard.WithHook(s.tell.hook), // with -trace, see telemetry.go
		guard.WithHook(s.tell.log),
	)
}

// handler is the endpoint. The middleware around claim makes it idempotent: for each
// Idempotency-Key of a user, claim runs once, on any of the servers. Another request with the key
// gets the first answer again. While the first request is under way, it is asked to retry later.
func (s *server) handler() (http.Handler, error) {
	var claim http.Handler = http.HandlerFunc(s.claim)
	if s.Guarded {
		idempotent, err := guardhttp.New(s.guard, guardhttp.IdempotencyKey,
			// whose key it is: in a real shop, the user who has logged in
			guardhttp.WithScope(guardhttp.FromPathValue("user")),
			// for how long the answer is given again
			idempotency.WithOnce(time.Hour),
			// what spans and metrics call it: they never have a key
			idempotency.WithLease(guard.WithName(nameClaim)),
		)
		if err != nil {
			return nil, err
		}
		claim = idempotent(claim)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /claim/{user}", s.tell.traced(s.seat(claim)))
	return mux, nil
}

// claim gives the user a coupon, or says why not. What is final is kept for the next request with
// the key; status 503 is not, so that the next one runs.
func (s *server) claim(w http.ResponseWriter, r *http.Request) {
	order, err := readOrder(r)
	if err != nil {
		refuse(w, err)
		return
	}
	left, err := s.sell(r.Context(), order)
	if err != nil {
		s.note(order, err)
		refuse(w, err)
		return
	}
	fmt.Fprintf(w, "%s has a coupon for size %s, %d are left\n", order.user, order.size, left)
}

// sell sells one coupon, and returns how many are left.
func (s *server) sell(ctx context.Context, o order) (left int, err error) {
	if s.soldOut.Load() {
		return 0, errSoldOut // for good: no request has to wait for a lease to learn this
	}
	if !s.Guarded {
		return s.takeOne(ctx, o)
	}
	// One request at a time may change the stock, on all servers together. A request that has
	// waited in vain for two seconds is asked to try again.
	err = s.guard.Do(ctx, stockKey, func(ctx context.Context) (err error) {
		left, err = s.takeOne(ctx, o)
		return err
	}, guard.WithWait(2*time.Second), guard.WithName(nameStock))
	return left, err
}

// takeOne takes a coupon out of the stock as programs do: it reads, decides, and writes back.
// Without a guard, two servers can read the same number at the same time. Both then write back one
// less.
func (s *server) takeOne(ctx context.Context, o order) (left int, err error) {
	fence := guard.Fence(ctx)
	remaining, err := s.db.read(ctx, o.user, fence)
	if err != nil {
		return 0, err
	}
	if err := s.think(ctx, o, remaining); err != nil {
		return 0, err
	}
	left = remaining - 1
	// The lease may be lost by now: this process may have been frozen. No check here could rule
	// that out, because the process could be frozen right after the check. (guard.Lease.Valid
	// would notice most of the time.) So both the read and the write carry the fence. The read
	// registers it. The database refuses the write if a newer holder has read the stock since.
	//
	// The write does not end with ctx, which ends when the lease is lost. This shows that the
	// fence is enough: a statement that was sent before the loss could not be stopped either.
	return left, s.db.write(context.WithoutCancel(ctx), sale{
		order: o, server: s.Name, remaining: left, fence: fence,
	})
}
