package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// ride sends the request from the caller's own goroutine if nothing else is under way, and returns false if that cannot be.
// The request is as it was.
//
// Who comes seldom gets no seat, and neither does anybody while the user's client has no connection: it may have been closed.
func (l *lane) ride(r *request) (answer any, ok bool, err error) {
	seat, user := l.board()
	if seat == nil {
		return nil, false, nil
	}
	defer l.land()
	if user.PoolStats().TotalConns == 0 {
		return nil, false, nil
	}
	if answer, err = seat.run(r.ctx, &r.call.Command, evalsha); isNoScript(err) {
		answer, err = seat.run(r.ctx, &r.call.Command, eval)
	}
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) {
		l.leave(seat) // its connection is no good, and another one may take long to make
	}
	return answer, true, err
}

// board returns the seat if it is free, for a flight that has begun. land has to follow.
func (l *lane) board() (*seat, *redis.Client) {
	user, _ := l.client.(*redis.Client)
	if user == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) >= seatIdle {
		l.row = 0
		return nil, nil
	}
	if l.flights > 0 {
		return nil, nil
	}
	l.row++
	if l.seat == nil {
		if l.row >= seatAfter && now.Sub(l.opened) >= seatIdle {
			l.opened = now
			go l.open(user)
		}
		return nil, nil
	}
	l.flights++
	l.last = now
	return l.seat, user
}

// open makes a seat, in the background: until then callers go by the user's client, which has a connection.
func (l *lane) open(user *redis.Client) {
	s := newSeat(user)
	ctx, cancel := context.WithTimeout(context.Background(), openWithin)
	defer cancel()
	s.ctx = ctx
	if err := s.client.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		_ = s.client.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seat != nil { // this one has taken longer than it may
		_ = s.client.Close()
		return
	}
	l.seat = s
	if l.cleaner == nil {
		l.cleaner = time.AfterFunc(seatIdle, l.clean)
	}
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

// leave closes the seat. What comes next goes by the user's client.
func (l *lane) leave(s *seat) {
	l.mu.Lock()
	l.seat = nil
	l.mu.Unlock()
	_ = s.client.Close()
}

// clean closes a seat on which nobody has been for some time.
func (l *lane) clean() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleaner = nil
	if l.seat == nil {
		return
	}
	if idle := time.Since(l.last); l.flights > 0 || idle < seatIdle {
		l.cleaner = time.AfterFunc(max(seatIdle-idle, seatIdle/10), l.clean)
		return
	}
	_ = l.seat.client.Close()
	l.seat = nil
}

// run sends a call and returns its answer, or the error of ctx when that ends first: by default go-redis reads on when
// a context has ended, for as long as the client's own time-outs say.
func (s *Store) run(ctx context.Context, c *Call) (any, error) {
	r := s.lane.request(ctx, c)
	if ctx.Err() == nil && c.Acks.Replicas == 0 {
		if answer, ok, err := s.lane.ride(r); ok {
			s.lane.free(r)
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
	s.lane.free(r)
	return answer, err
}

// wait waits for the answer, and returns an error if ctx ends first. At first it does so without a look at ctx's Done: most answers come
// soon, and the context of a call makes a timer, and whatever it takes to end with the caller's, when somebody asks for that.
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
