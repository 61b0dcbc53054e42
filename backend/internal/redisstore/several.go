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
	several(ctx, s, claims, call, report, func(r *request, done func(driver.Answer, error)) { r.granted = done })
}

// HeldBatch is AcquireBatch for renewals and releases.
func (s *Store) HeldBatch(
	ctx context.Context, claims []driver.Claim, call func(driver.Claim) Call, report func(i int, held bool, err error),
) {
	several(ctx, s, claims, call, report, func(r *request, done func(bool, error)) { r.held = done })
}

// several sends a call for each of the claims, whose requests call the done that set gives them. It
// calls report once for each, and returns when all are reported, soon after ctx has ended at the
// latest.
func several[T any](
	ctx context.Context, s *Store, claims []driver.Claim, call func(driver.Claim) Call,
	report func(i int, answer T, err error), set func(r *request, done func(T, error)),
) {
	type result struct {
		i      int
		answer T
		err    error
	}
	results := make(chan result, len(claims)) // room for those that come after ctx has ended
	requests := make([]*request, len(claims))
	for i, c := range claims {
		of := call(c)
		requests[i] = s.newRequest(ctx, &of)
		set(requests[i], func(answer T, err error) { results <- result{i, answer, err} })
	}
	s.startAll(requests)
	reported := make([]bool, len(claims))
	for range claims {
		select {
		case r := <-results:
			reported[r.i] = true
			report(r.i, r.answer, r.err)
			continue
		case <-ctx.Done():
		}
		for i, c := range claims {
			if !reported[i] { // its request may still be in use
				var none T
				of := call(c)
				report(i, none, s.error(&of, ctx.Err()))
			}
		}
		return
	}
}

// startAll starts the requests. Those to one server are added to its queue at once, so that they go
// out together.
func (s *Store) startAll(requests []*request) {
	together := make([]*request, 0, len(requests))
	for _, r := range requests {
		if s.router != nil || s.refused(r) != nil {
			s.start(r)
		} else {
			together = append(together, r)
		}
	}
	if len(together) > 0 {
		s.server.add(together...)
	}
}
