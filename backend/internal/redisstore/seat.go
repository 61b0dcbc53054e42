package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// seatIdle is for how long a seat stands without being used, and seatAfter how many requests have to come, with less than that
	// between them, to be given one. Who comes seldom goes by the user's client.
	seatIdle  = 500 * time.Millisecond
	seatAfter = 10
	// openWithin is how long it may take to make one, less than seatIdle.
	openWithin = 400 * time.Millisecond
	// glance is how often a caller who waits for the server looks whether its context has ended. Nothing else would end the
	// read of one that is cancelled.
	glance = 20 * time.Millisecond
)

// A seat is one connection of our own to the user's server, for one caller at a time, who reads and writes itself: to
// have another goroutine do that costs as much again as the round trip. It has what the user's client was made with, but
// for its hooks, which cannot be read.
type seat struct {
	client *redis.Client
	ctx    context.Context // of the caller
	cmd    redis.Cmd
	once   noRetry // around cmd
	args   []any
}

// newSeat returns a seat on the server of that client. It connects when it is used.
func newSeat(of *redis.Client) *seat {
	s := &seat{}
	opt := *of.Options()
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.ctx, cancel)()
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wire{Conn: conn, seat: s}, nil
	}
	opt.PoolSize, opt.MaxActiveConns, opt.MinIdleConns, opt.MaxIdleConns, opt.PipelinePoolSize = 1, 1, 0, 0, -1
	opt.MaxRetries = -1
	opt.ContextTimeoutEnabled = true
	opt.ReadTimeout, opt.WriteTimeout = asGiven(opt.ReadTimeout), asGiven(opt.WriteTimeout)
	// Nobody would read what the server says of itself between two calls.
	opt.Protocol = 2
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	s.client = redis.NewClient(&opt)
	return s
}

// asGiven returns the time-out that a user gives to mean what a client's options say: 0 and -1 have other meanings there.
func asGiven(d time.Duration) time.Duration {
	switch d {
	case 0:
		return -1
	case -1:
		return -2
	default:
		return d
	}
}

// run runs the script, by its hash or its source, and returns its answer. It ends soon after ctx has.
func (s *seat) run(ctx context.Context, c *Command, name any) (any, error) {
	s.ctx = ctx
	s.args = c.append(s.args[:0], name)
	s.cmd = *redis.NewCmd(ctx, s.args...)
	s.once = noRetry{&s.cmd}
	err := s.client.Process(undone{ctx}, &s.once)
	answer := s.cmd.Val()
	clear(s.args)
	s.cmd = redis.Cmd{}
	return answer, err
}

// undone is a context whose end go-redis does not wait for: the wire, and who dials, look for themselves. See request.wait.
type undone struct{ context.Context }

func (undone) Done() <-chan struct{} { return nil }

// A wire is the connection of a seat.
type wire struct {
	net.Conn
	seat  *seat
	until time.Time // when to give up reading, if ever
}

// SetReadDeadline is net.Conn's. Read keeps to it.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.until = t
	return nil
}

// SetDeadline is net.Conn's.
func (w *wire) SetDeadline(t time.Time) error {
	w.until = t
	return w.SetWriteDeadline(t)
}

// Read is net.Conn's, and ends soon after the context of who has the seat, who then has to leave it: the answer that is under
// way is not the next caller's.
func (w *wire) Read(b []byte) (int, error) {
	for {
		look := time.Now().Add(glance)
		last := !w.until.IsZero() && !w.until.After(look)
		if last {
			look = w.until
		}
		if err := w.Conn.SetReadDeadline(look); err != nil {
			return 0, err
		}
		n, err := w.Conn.Read(b)
		if n > 0 || last || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err := w.seat.ctx.Err(); err != nil {
			return 0, err
		}
	}
}
