package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newClient returns a client with one connection, made when it is used, to where the user's client
// goes. It has what that was made with, but for its hooks, which cannot be read.
func (c *connection) newClient() *redis.Client {
	opt := *c.user.Options()
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(c.calling(), cancel)()
		nc, err := dial(ctx, network, addr)
		// else go-redis would dial by itself, again and again, until its client is closed
		if err != nil {
			nc, _ = net.Pipe()
		}
		conn := &netConn{Conn: nc, of: c, failed: err}
		c.conn.Store(conn)
		return conn, nil
	}
	opt.Limiter = nil // see newPooled
	opt.PoolSize, opt.MaxActiveConns, opt.MinIdleConns, opt.MaxIdleConns, opt.PipelinePoolSize = 1, 1, 0, 0, -1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ConnMaxIdleTime = c.stays // so that go-redis does not use what disconnect has closed
	opt.ContextTimeoutEnabled = true
	opt.ReadTimeout, opt.WriteTimeout = asGiven(opt.ReadTimeout), asGiven(opt.WriteTimeout)
	// Nothing would read what the server says of itself between two calls.
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

// undone is a context whose end go-redis does not wait for: netConn and the dialer watch it.
type undone struct{ context.Context }

func (undone) Done() <-chan struct{} { return nil }

// A netConn is the network connection of a connection.
type netConn struct {
	net.Conn
	of     *connection
	failed error     // why there is no connection, or nil
	until  time.Time // when to give up reading, if ever
}

// Write implements net.Conn.
func (c *netConn) Write(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	return c.Conn.Write(b)
}

// SetReadDeadline implements net.Conn. Read keeps to it, also if the wall clock is moved
// meanwhile: what go-redis gives is an instant of that clock. The deadline of the user's call
// counts instead of the client's ReadTimeout, if there is one: the server may be slow.
func (c *netConn) SetReadDeadline(t time.Time) error {
	c.until = time.Time{}
	if deadline, ok := c.of.calling().Deadline(); ok && !t.IsZero() {
		c.until = deadline
		return nil
	}
	if !t.IsZero() {
		now := time.Now()
		c.until = now.Add(t.Sub(now))
	}
	return nil
}

// SetDeadline implements net.Conn.
func (c *netConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t) // which cannot fail
	return c.SetWriteDeadline(t)
}

// Read implements net.Conn. It ends soon after the context of the connection's user, which then
// has to disconnect: the answer that is under way is not the next caller's.
func (c *netConn) Read(b []byte) (int, error) {
	for {
		look := time.Now().Add(glance)
		last := !c.until.IsZero() && !c.until.After(look)
		if last {
			look = c.until
		}
		if err := c.Conn.SetReadDeadline(look); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(b)
		if n > 0 || last || !isTimeout(err) || time.Now().Before(look) {
			return n, err
		}
		if err := c.of.ctx.Err(); err != nil {
			return 0, err
		}
		if c.of.connecting.Load() && c.of.userGone() {
			return 0, redis.ErrClosed
		}
	}
}

// isTimeout reports whether a read has ended at its deadline. The errors of some transports are not
// os.ErrDeadlineExceeded.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
