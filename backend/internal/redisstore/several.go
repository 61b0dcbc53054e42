package redisstore

import (
	"context"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// AcquireBatch implements driver.BatchAcquirer: claims that a script can serve together are made by
// one, on each server. call returns the call for a claim.
func (s *Store) AcquireBatch(
	ctx context.Context, claims []driver.Claim, call func(driver.Claim) Call, report func(i int, g driver.Answer, err error),
) {
	s.several(ctx, claims, call, func(i int, c *Call, answer any, err error) {
		if refused := s.checkTTL(c); refused != nil {
			report(i, driver.Answer{}, refused)
			return
		}
		grant, err := s.toGrant(c, answer, err)
		report(i, grant, err)
	})
}

// HeldBatch is AcquireBatch for renewals and releases.
func (s *Store) HeldBatch(
	ctx context.Context, claims []driver.Claim, call func(driver.Claim) Call, report func(i int, held bool, err error),
) {
	s.several(ctx, claims, call, func(i int, c *Call, answer any, err error) {
		n, err := s.toInt(c, answer, err)
		report(i, n == 1, err)
	})
}

// several sends a call for each of the claims. It calls report once for each, and returns when all
// are reported, soon after ctx has ended at the latest.
func (s *Store) several(
	ctx context.Context, claims []driver.Claim, call func(driver.Claim) Call, report func(i int, c *Call, answer any, err error),
) {
	type result struct {
		i      int
		answer any
		err    error
	}
	results := make(chan result, len(claims)) // room for those that come after ctx has ended
	requests := make([]*request, len(claims))
	for i, c := range claims {
		r := &request{ctx: ctx, call: call(c)}
		r.done = func(answer any, err error) {
			if r.call.instead(err) {
				r.bySource = false
				s.start(r)
				return
			}
			results <- result{i, answer, err}
		}
		requests[i] = r
	}
	s.startAll(ctx, requests)
	reported := make([]bool, len(claims))
	for range claims {
		select {
		case r := <-results:
			reported[r.i] = true
			report(r.i, &requests[r.i].call, r.answer, r.err)
			continue
		case <-ctx.Done():
		}
		for i, c := range claims {
			if !reported[i] { // its request may still be in use
				own := call(c)
				report(i, &own, nil, ctx.Err())
			}
		}
		return
	}
}

// startAll starts the requests. Those to one server are added to its queue at once, so that they go
// out together.
func (s *Store) startAll(ctx context.Context, requests []*request) {
	if len(requests) == 0 || s.router != nil || s.refused(ctx) != nil {
		for _, r := range requests {
			s.start(r)
		}
		return
	}
	s.server.add(requests...)
}
