package both

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Renew implements driver.Locker. It returns false if either side does.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	driver.Await(ctx, l, driver.OpRenew, []driver.Claim{c}, driver.After{}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

// Start implements driver.Async. It sends a batch of renewals to each side at the same time.
func (l *Locker) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew {
		driver.Each{Locker: l}.Start(ctx, op, claims, after, done)
		return
	}
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i] = onSide(claims[i])
	}
	all := make([]renewal, len(claims))
	for at, s := range l.sides {
		answer := func(i int, a driver.Answer, err error) {
			if err != nil {
				err = s.error(op, claims[i].Key, err)
			}
			if all[i].add(at, a.Held, err) {
				held, err := all[i].result()
				done(i, driver.Answer{Held: held}, err)
			}
		}
		go contain.Call(func() (none driver.Answer, _ error) {
			driver.AsyncOf(s.Locker).Start(ctx, op, claims, after, answer)
			return none, nil
		}, func(none driver.Answer, err error) {
			for i := range claims {
				if err != nil {
					answer(i, none, err)
				}
			}
		})
	}
}

// A renewal is what the sides have answered to the renewal of one claim.
type renewal struct {
	mu       sync.Mutex
	answered [2]bool // by side
	lost     bool    // a side does not hold the claim
	err      error   // a side has failed
	reported bool
}

// add adds a side's first answer. It returns true if the result is known now: at once if the claim
// is lost.
func (r *renewal) add(at int, held bool, err error) (known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported || r.answered[at] {
		return false
	}
	r.answered[at] = true
	switch {
	case err != nil:
		r.err = err
	case !held:
		r.lost = true
	}
	r.reported = r.lost || r.answered == [2]bool{true, true}
	return r.reported
}

// result returns the answer to a renewal whose result is known.
func (r *renewal) result() (held bool, err error) {
	if r.lost {
		return false, nil
	}
	return r.err == nil, r.err
}
