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

// glance is how often who waits for the server looks whether its context has ended. Nothing else
// would end the read of one that is cancelled.
const glance = 20 * time.Millisecond

// newOwn returns a client of our own for a seat: one connection, made when it is used, to where
// the user's client goes, also through Sentinel. It has what that was made with, but for its
// hooks, which cannot be read.
func newOwn(s *seat) *redis.Client {
	opt := *s.user.Options()
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.calling(), cancel)()
		conn, err := dial(ctx, network, addr)
		// else go-redis would dial by itself, again and again, until its client is closed
		if err != nil {
			conn, _ = net.Pipe()
		}
		w := &wire{Conn: conn, seat: s, failed: err}
		s.wire.Store(w)
		return w, nil
	}
	opt.Limiter = nil // see newPooled
	opt.PoolSize, opt.MaxActiveConns, opt.MinIdleConns, opt.MaxIdleConns, opt.PipelinePoolSize = 1, 1, 0, 0, -1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ConnMaxIdleTime = s.stay // so that go-redis does not use what close has closed
	opt.ContextTimeoutEnabled = true
	opt.ReadTimeout, opt.WriteTimeout = asGiven(opt.ReadTimeout), asGiven(opt.WriteTimeout)
	// Nobody would read what the server says of itself between two calls.
	opt.Protocol = 2
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	return redis.NewClient(&opt)
}

// asGiven returns the time-out that a user gives to mean what a client's options say: 0 and -1
// have other meanings there.
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

// A wire is the connection of a seat.
type wire struct {
	net.Conn
	seat   *seat
	failed error     // why there is no connection, or nil
	until  time.Time // when to give up reading, if ever
}

// Write is net.Conn's.
func (w *wire) Write(b []byte) (int, error) {
	if w.failed != nil {
		return 0, w.failed
	}
	return w.Conn.Write(b)
}

// SetReadDeadline is net.Conn's. Read keeps to it, also if the wall clock is moved meanwhile: what
// go-redis gives is an instant of that clock.
func (w *wire) SetReadDeadline(t time.Time) error {
	w.until = time.Time{}
	if !t.IsZero() {
		now := time.Now()
		w.until = now.Add(t.Sub(now))
	}
	return nil
}

// SetDeadline is net.Conn's.
func (w *wire) SetDeadline(t time.Time) error {
	_ = w.SetReadDeadline(t) // which cannot fail
	return w.SetWriteDeadline(t)
}

// Read is net.Conn's, and ends soon after the context of who has the seat, who then has to give
// the connection up: the answer that is under way is not the next caller's.
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
