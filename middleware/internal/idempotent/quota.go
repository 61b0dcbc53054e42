package idempotent

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

const (
	// windowPeriods is how many periods a window has. The store keeps a counter for each of them,
	// and one for the current period.
	windowPeriods = 4
	// shortestPeriod keeps the number of a period short, so that countBits are left for the count.
	shortestPeriod = time.Minute
	countBits      = 27
	// blockShare is the part of the bound that a process reserves at a time: 1/100.
	blockShare = 100
	// maxShares bounds the memory of a process. Places that it forgets stay counted.
	maxShares = 100_000
)

// A quota bounds how many records a scope has in the store, across all processes
// (WithMaxScopeRecords).
//
// The counters of a scope are in the ledger of the backend, which can only raise a number: each
// holds the number of a period and a count. A process that raises the count from 3 to 8 has
// reserved five places, and no other process has reserved the same ones. It reserves some at a
// time, so that most runs do not ask the store.
type quota struct {
	ledger driver.Ledger
	prefix string // of the names of scopes
	most   int64
	length time.Duration // of a period

	mu     sync.Mutex
	period int64
	shares map[string]*share // of the period
}

// A share is what a process knows of a scope in the current period.
type share struct {
	places int64 // reserved, and not taken
	looked bool
	earlier
}

// earlier is what was counted in the periods before, as far as it may still be in the store.
type earlier struct {
	count int64
	first int64 // the first period with a count, or 0
}

// newQuota returns the quota of settings, or nil if there is none.
func newQuota(g *guard.Guard, s *Settings) *quota {
	ledger, ok := g.Adapter().Ledger(s.Lease...)
	if !ok {
		s.Refuse("WithMaxScopeRecords", s.ScopeRecords, "needs a backend that keeps counters (driver.Ledger)")
		return nil
	}
	length := max(shortestPeriod, s.Retention/windowPeriods+s.MaxHold/windowPeriods)
	return &quota{
		ledger: ledger, prefix: string(s.Adapter) + ":records:", most: int64(s.ScopeRecords), length: length, shares: map[string]*share{},
	}
}

// A fullError says that a scope has as many records as it may have.
type fullError struct {
	pkg  string
	most int64
	left time.Duration // until the scope may have more
}

func (e *fullError) Error() string {
	return fmt.Sprintf("%s: the scope has left %d records, which is all that WithMaxScopeRecords allows", e.pkg, e.most)
}

// handle runs the handler of a call, if there is a place for a record of the scope.
func (q *quota) handle(c *Call, leased, call context.Context) error {
	place, err := q.take(leased, c.Scope, c.Core.Adapter)
	if err != nil {
		return err
	}
	defer func() { // also if a panic is on its way up
		if c.left.Keep == idempotency.KeepNothing {
			q.giveBack(place, c.Scope)
		}
	}()
	return c.handle(leased, call)
}

// take takes a place for a record of the scope. It returns the period to which the place belongs,
// or a *fullError, or the error of the store.
func (q *quota) take(ctx context.Context, scope string, a Adapter) (period int64, err error) {
	period = time.Now().UnixMilli() / q.length.Milliseconds()
	s, taken := q.takeReserved(period, scope)
	if taken {
		return period, nil
	}
	name := q.name(scope)
	if !s.looked {
		if s.earlier, err = q.look(ctx, name, period); err != nil {
			return 0, err
		}
	}
	places, err := q.reserve(ctx, name, period, q.most-s.count)
	if err != nil {
		return 0, err
	}
	if places == 0 {
		q.add(period, scope, share{looked: true, earlier: s.earlier}) // the next one need not look
		first := s.first
		if first == 0 {
			first = period
		}
		end := time.UnixMilli((first + windowPeriods + 1) * q.length.Milliseconds())
		return 0, &fullError{a.Package(), q.most, time.Until(end)}
	}
	q.add(period, scope, share{places: places - 1, looked: true, earlier: s.earlier})
	return period, nil
}

// takeReserved takes a place that the process has reserved, and returns what it knows of the scope.
func (q *quota) takeReserved(period int64, scope string) (known share, taken bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if period != q.period || len(q.shares) > maxShares {
		q.period = period
		clear(q.shares)
	}
	s := q.shares[scope]
	switch {
	case s == nil:
		return share{}, false
	case s.places == 0:
		return *s, false
	}
	s.places--
	return *s, true
}

// add adds places to those that the process has reserved for the scope.
func (q *quota) add(period int64, scope string, more share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if period != q.period {
		return
	}
	if s := q.shares[scope]; s != nil {
		more.places += s.places
		more.looked, more.earlier = more.looked || s.looked, s.earlier
	}
	q.shares[scope] = &more
}

// giveBack returns a place that was taken for a run that leaves no record.
func (q *quota) giveBack(period int64, scope string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := q.shares[scope]; s != nil && period == q.period {
		s.places++
	}
}

// look returns what was counted in the periods of the window before this one.
func (q *quota) look(ctx context.Context, name string, period int64) (e earlier, err error) {
	for p := period - windowPeriods; p < period; p++ {
		is, err := q.ledger.Raise(ctx, name, slot(p), 0)
		if err != nil {
			return earlier{}, err
		}
		counted := is >> countBits
		if count := is & (1<<countBits - 1); count > 0 && counted >= period-windowPeriods {
			e.count += count
			if e.first == 0 {
				e.first = counted
			}
		}
	}
	return e, nil
}

// reserve reserves places of which the period may have most in all. It returns 0 if all are taken.
func (q *quota) reserve(ctx context.Context, name string, period, most int64) (places int64, err error) {
	base := period << countBits
	count := int64(0)
	for {
		to := min(count+max(1, q.most/blockShare), most)
		if to <= count {
			return 0, nil
		}
		was, err := q.ledger.Raise(ctx, name, slot(period), base+to)
		if err != nil {
			return 0, err
		}
		if was < base+to {
			return to - max(0, was-base), nil
		}
		base = max(base, was>>countBits<<countBits) // of a process whose clock is far ahead
		count = was - base
	}
}

// slot returns the counter of a period.
func slot(period int64) string { return strconv.FormatInt(period%(windowPeriods+1), 10) }

// name returns the name under which the ledger keeps the counters of a scope. Middlewares with the
// same window count together.
func (q *quota) name(scope string) string {
	sum := keys.Hash("records", scope, q.length.String())
	return q.prefix + base64.RawURLEncoding.EncodeToString(sum[:])
}
