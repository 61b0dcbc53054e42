package both

import (
	"context"
	"errors"
	"sync"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Renew implements driver.Locker. It returns false if either side does.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	l.RenewBatch(ctx, []driver.Claim{c}, func(_ int, h bool, e error) { held, err = h, e })
	return held, err
}

// RenewBatch implements driver.BatchRenewer. It sends a batch to each side at the same time.
func (l *Locker) RenewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	claims = append([]driver.Claim(nil), claims...)
	for i := range claims {
		claims[i] = onSide(claims[i])
	}
	all := make([]renewal, len(claims))
	var sides sync.WaitGroup
	for _, s := range l.sides {
		sides.Go(func() {
			report := func(i int, held bool, err error) {
				if err != nil {
					err = s.error(driver.OpRenew, claims[i].Key, err)
				}
				if all[i].add(held, err) {
					report(i, all[i].err == nil && !all[i].lost, all[i].result())
				}
			}
			contain.Batch(len(claims), errUnreported, report, func(report func(i int, held bool, err error)) {
				s.renewBatch(ctx, claims, report)
			})
		})
	}
	sides.Wait()
}

// errUnreported is the error of a claim on which a side has not reported.
var errUnreported = errors.New("it has not reported on the claim")

// A renewal is what the sides have answered to the renewal of one claim.
type renewal struct {
	mu       sync.Mutex
	answers  int
	lost     bool  // a side does not hold the claim
	err      error // a side has failed
	reported bool
}

// add adds an answer. It returns true if the result is known now: at once if the claim is lost.
func (r *renewal) add(held bool, err error) (known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported {
		return false
	}
	r.answers++
	switch {
	case err != nil:
		r.err = err
	case !held:
		r.lost = true
	}
	r.reported = r.lost || r.answers == len(Locker{}.sides)
	return r.reported
}

// result returns the error of a renewal whose result is known.
func (r *renewal) result() error {
	if r.lost {
		return nil
	}
	return r.err
}

// renewBatch renews the claims on a side, and calls report once for each.
func (s side) renewBatch(ctx context.Context, claims []driver.Claim, report func(i int, held bool, err error)) {
	if b, ok := s.Locker.(driver.BatchRenewer); ok {
		b.RenewBatch(ctx, claims, report)
		return
	}
	var all sync.WaitGroup
	for i, c := range claims {
		all.Go(func() {
			contain.Call(func() (bool, error) { return s.Renew(ctx, c) }, func(held bool, err error) { report(i, held, err) })
		})
	}
	all.Wait()
}
