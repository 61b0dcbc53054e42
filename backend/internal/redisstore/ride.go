package redisstore

import (
	"context"
	"time"
)

// ride sends the request from the caller's own goroutine if nothing else is under way, and returns
// false if that cannot be. The request is as it was.
func (l *lane) ride(r *request) (answer any, ok bool, err error) {
	s := l.boardAlone(r.ctx)
	if s == nil {
		return nil, false, nil
	}
	defer l.land()
	if answer, err = s.run(&r.call.Command, evalsha); isNoScript(err) && r.ctx.Err() == nil {
		answer, err = s.run(&r.call.Command, eval)
	}
	s.leave(err)
	if l.moved != nil && elsewhere(err) {
		return nil, false, nil
	}
	return answer, true, err
}

// boardAlone returns a seat for a flight that has begun, if no other is out. land has to follow.
func (l *lane) boardAlone(ctx context.Context) *seat {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.flights > 0 || len(l.seats) == 0 || !l.seats[0].take(ctx) {
		return nil
	}
	l.flights++
	l.last = l.seats[0].used
	return l.seats[0]
}

// board returns a seat for a flight, or nil if it is to go by the user's client.
func (l *lane) board(ctx context.Context) *seat {
	for _, s := range l.seats {
		if s.take(ctx) {
			return s
		}
	}
	for _, s := range l.seats {
		if s.userHasNoneLeft() && s.wait(ctx, lateAfter) {
			return s
		}
	}
	return nil
}

// land has a pilot take over what has come in meanwhile.
func (l *lane) land() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flights--
	if l.ready() {
		l.begin()
	}
}

// run sends a call and returns its answer, or the error of ctx when that ends first: by default
// go-redis reads on when a context has ended, for as long as the client's own time-outs say.
func (s *Store) run(ctx context.Context, c *Call) (any, error) {
	r := s.request(ctx, c)
	if lane := s.laneNow(r); lane != nil && ctx.Err() == nil && c.Acks.Replicas == 0 {
		if answer, ok, err := lane.ride(r); ok {
			s.free(r)
			if err != nil && ctx.Err() != nil {
				err = ctx.Err()
			}
			return answer, err
		}
	}
	s.start(r)
	if err := r.wait(ctx); err != nil {
		return nil, err // r may be on its way still
	}
	answer, err := r.answer, r.err
	s.free(r)
	return answer, err
}

// wait waits for the answer, and returns an error if ctx ends first. At first it does so without a
// look at ctx's Done: most answers come soon, and the context of a call makes a timer, and
// whatever it takes to end with the caller's, when somebody asks for that.
func (r *request) wait(ctx context.Context) error {
	if r.soon == nil {
		r.soon = time.NewTimer(glance)
	} else {
		r.soon.Reset(glance)
	}
	select {
	case <-r.ready:
		r.soon.Stop()
		return nil
	case <-r.soon.C:
	}
	select {
	case <-r.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
