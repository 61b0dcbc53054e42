package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// seatIdle is for how long the connection of a seat stands without being used, and seatAfter
	// how many have to have asked for one, with less than that between them, for it to be made.
	// Who comes seldom goes by the user's client.
	seatIdle  = 500 * time.Millisecond
	seatAfter = 10
	// renewalIdle is seatIdle for renewals, of which the next one comes after a third of a TTL.
	renewalIdle = 15 * time.Second
	// connectWithin is how long it may take to make one, less than seatIdle.
	connectWithin = 400 * time.Millisecond
	// lookEvery is how often a seat in use looks whether the user's client was closed.
	lookEvery = 5 * time.Millisecond
)

// A seat is a place for a connection of our own to the server of the user's client, for one at a
// time. Who has it needs none of the connections that the application may have taken all, and can
// read and write by itself: to have another goroutine do that costs as much again as the round
// trip.
//
// The connection is made when it is needed, and closed when it has not been used for some time, or
// the user's client was closed. While there is none, and where none can be made, everything goes
// by the user's client.
type seat struct {
	user *redis.Client
	stay time.Duration        // for how long a connection stands unused
	turn chan struct{}        // has something in it while somebody has the seat
	wire atomic.Pointer[wire] // the newest connection
	mu   sync.Mutex

	// These are of who has the seat.
	client  *redis.Client // of our own, or nil so far
	setups  []func(*redis.Client)
	ctx     context.Context // ends what is under way; mu is held to change it
	open    bool            // there is a connection
	used    time.Time
	looked  time.Time // when the user's client was last seen at work
	asked   time.Time
	row     int       // how many asked, one soon after the other
	tried   time.Time // when the last connection was begun
	watched bool      // clean is to come
	cmd     redis.Cmd
	once    noRetry // around cmd
	args    []any
}

func newSeat(user *redis.Client, stay time.Duration) *seat {
	return &seat{user: user, stay: stay, turn: make(chan struct{}, 1), ctx: context.Background()}
}

// own returns the seat's client, or an error if it could not be set up.
func (s *seat) own() (client *redis.Client, err error) {
	if s.client != nil {
		return s.client, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	client = newOwn(s)
	for _, f := range s.setups {
		f(client)
	}
	s.client = client
	return client, nil
}

// take gives the seat to the caller if it is free and has a connection, and has one made if it is
// asked for often. leave has to follow.
func (s *seat) take(ctx context.Context) bool {
	select {
	case s.turn <- struct{}{}:
	default:
		return false
	}
	now := time.Now()
	if s.usable(now) {
		s.used = now
		s.call(ctx)
		return true
	}
	if now.Sub(s.asked) >= seatIdle {
		s.row = 0
	}
	s.asked = now
	s.row++
	if !s.open && s.row >= seatAfter && now.Sub(s.tried) >= seatIdle {
		go func() { // the caller goes by the user's client, which has a connection
			s.connect(context.WithoutCancel(ctx))
			<-s.turn
		}()
		return false
	}
	<-s.turn
	return false
}

// wait gives the seat to the caller when its turn comes, with a connection, and returns false if
// that takes long or none can be made. leave has to follow.
func (s *seat) wait(ctx context.Context, patience time.Duration) bool {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case s.turn <- struct{}{}:
	case <-late.C:
		return false
	case <-ctx.Done():
		return false
	}
	now := time.Now()
	ok := s.usable(now) && now.Sub(s.used) < seatIdle
	if !ok && (s.open || now.Sub(s.tried) >= seatIdle) {
		ok = s.connect(ctx) // it asks a connection that has rested whether it is alive
	}
	if !ok {
		<-s.turn
		return false
	}
	s.used = now
	s.call(ctx)
	return true
}

// call notes the context of who has the seat.
func (s *seat) call(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ctx = ctx
}

// calling returns that context, for who dials: go-redis may do so for longer than for who has the
// seat.
func (s *seat) calling() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx
}

// userGone reports whether the user's client has no connection: it may have been closed. If not,
// it makes one when we go by it.
func (s *seat) userGone() bool { return s.user.PoolStats().TotalConns == 0 }

// userHasNoneLeft reports whether the application has taken all connections of the user's client.
func (s *seat) userHasNoneLeft() bool {
	stats := s.user.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= s.user.Options().PoolSize
}

// usable reports whether there is a connection, while the user's client has one, too.
func (s *seat) usable(now time.Time) bool {
	switch {
	case !s.open:
		return false
	case now.Sub(s.used) >= s.stay:
		s.close()
		return false
	case now.Sub(s.looked) < lookEvery:
		return true
	}
	if s.userGone() {
		return false
	}
	s.looked = now
	return true
}

// connect makes the connection if there is none, and asks the server whether it is good. One that
// was there may be broken: then it makes another.
func (s *seat) connect(ctx context.Context) bool {
	s.tried = time.Now()
	client, err := s.own()
	if err != nil || s.userGone() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	s.call(ctx)
	if err = client.Ping(ctx).Err(); spoilt(err) && ctx.Err() == nil {
		err = client.Ping(ctx).Err()
	}
	s.open = err == nil || redis.HasErrorPrefix(err, "NOPERM")
	s.call(context.Background())
	s.used = time.Now()
	if s.open && !s.watched {
		s.watched = true
		time.AfterFunc(seatIdle, s.clean)
	}
	return s.open
}

// leave gives the seat back after what has ended with err.
func (s *seat) leave(err error) {
	s.call(context.Background())
	s.used = time.Now()
	if spoilt(err) {
		s.close() // it is no good, and the next one may take long to make
	}
	<-s.turn
}

// spoilt reports whether err says that a connection is no good: the server has not answered, or is
// not the one that writes any more.
func spoilt(err error) bool {
	if err == nil {
		return false
	}
	var reply redis.Error
	return !errors.As(err, &reply) || redis.HasErrorPrefix(err, "READONLY")
}

// close closes the connection. go-redis finds it closed when it is to use it again.
func (s *seat) close() {
	s.open, s.row = false, 0
	if w := s.wire.Load(); w != nil {
		_ = w.Close() // all it could say is that it is closed
	}
}

// clean closes a connection that is not needed any more.
func (s *seat) clean() {
	select {
	case s.turn <- struct{}{}:
	default:
		time.AfterFunc(seatIdle, s.clean)
		return
	}
	defer func() { <-s.turn }()
	idle := time.Since(s.used)
	if s.open && (idle >= s.stay || s.userGone()) {
		s.close()
	}
	if s.watched = s.open; s.watched {
		time.AfterFunc(min(seatIdle, max(s.stay-idle, seatIdle/10)), s.clean)
	}
}

// run runs the script, by its hash or its source, and returns its answer. It ends soon after the
// context of who has the seat.
func (s *seat) run(c *Command, name any) (any, error) {
	s.args = c.append(s.args[:0], name)
	s.cmd = *redis.NewCmd(s.ctx, s.args...)
	s.once = noRetry{&s.cmd}
	err := s.client.Process(undone{s.ctx}, &s.once)
	answer := s.cmd.Val()
	clear(s.args)
	s.cmd = redis.Cmd{}
	return answer, err
}

// undone is a context whose end go-redis does not wait for: the wire, and who dials, look for
// themselves. See request.wait.
type undone struct{ context.Context }

func (undone) Done() <-chan struct{} { return nil }
