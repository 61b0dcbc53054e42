package redisstore

import (
	"context"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// integer runs a script that answers an integer.
func (s *Store) integer(ctx context.Context, c Call) (int64, error) {
	answer, err := s.run(ctx, &c)
	return s.toInt(&c, answer, err)
}

// startHeld is integer that does not wait: done is called once with whether the answer is 1, or an
// error when none can come any more, which may be some time after ctx has ended. It must not block.
func (s *Store) startHeld(ctx context.Context, c Call, done func(held bool, err error)) {
	r := s.newRequest(ctx, &c)
	r.held = done
	s.start(r)
}

// several sends a call for each of the claims: those that a script can serve together by one, on
// each server. Their requests have the type of answer that on asks for. It calls report once for
// each, and returns when all are reported, soon after ctx has ended at the latest.
func several[T any](
	ctx context.Context, s *Store, claims []driver.Claim, call func(driver.Claim) Call,
	report func(i int, answer T, err error), on func(r *request, done func(T, error)),
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
		on(requests[i], func(answer T, err error) { results <- result{i, answer, err} })
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
