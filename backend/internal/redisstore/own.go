package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// An ownClient makes a lane's own connections to the server of the application's client.
type ownClient struct {
	app    *redis.Client
	idle   time.Duration // how long the lane stays connected unused
	setups []func(*redis.Client)
	client *redis.Client           // nil until it is set up
	tcp    atomic.Pointer[netConn] // the newest connection
	mu     sync.Mutex
	ctx    context.Context // of the caller that uses the lane
}

// setUp makes the client, or returns an error if it could not be set up.
func (o *ownClient) setUp() (err error) {
	if o.client != nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	client := o.newClient()
	for _, f := range o.setups {
		f(client)
	}
	o.client = client
	return nil
}

// setCall notes the context of the caller that uses the lane. A nil ownClient ignores it.
func (o *ownClient) setCall(ctx context.Context) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ctx = ctx
}

// call returns the context of the caller: go-redis may dial for longer than the caller waits.
func (o *ownClient) call() context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctx
}

// disconnect closes the connection. go-redis notices that when it uses the connection again.
func (o *ownClient) disconnect() {
	if tcp := o.tcp.Load(); tcp != nil {
		_ = tcp.Close()
	}
}

// newClient returns a client with one connection. It has the options of the application's client.
// It does not have its hooks: they cannot be read.
//
// The caller that uses the lane reads and writes in its own goroutine: another goroutine for that
// would cost as much as the round trip. A read of go-redis does not end with its context, but a
// read of netConn does.
func (o *ownClient) newClient() *redis.Client {
	opt := *o.app.Options()
	dial := opt.Dialer
	opt.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(o.call(), cancel)()
		tcp, err := dial(ctx, network, addr)
		if err != nil {
			// A failed dial would start go-redis' endless redial in the background.
			tcp, _ = net.Pipe()
		}
		conn := &netConn{Conn: tcp, own: o, failed: err}
		o.tcp.Store(conn)
		return conn, nil
	}
	opt.Limiter = nil // see newSlowMode
	opt.PoolSize, opt.MaxActiveConns, opt.MinIdleConns, opt.MaxIdleConns, opt.PipelinePoolSize = 1, 1, 0, 0, -1
	opt.MaxRetries, opt.DialerRetries = -1, 1
	opt.ConnMaxIdleTime = o.idle // go-redis must not use what disconnect has closed
	opt.ContextTimeoutEnabled = true
	opt.ReadTimeout, opt.WriteTimeout = timeoutOption(opt.ReadTimeout), timeoutOption(opt.WriteTimeout)
	// Nothing would read what the server says of itself between two calls.
	opt.Protocol = 2
	opt.PushNotificationProcessor = nil
	opt.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	opt.ClientSideCacheConfig, opt.ClientSideCache = nil, nil
	return redis.NewClient(&opt)
}

// timeoutOption maps an effective time-out back to the option value that produces it.
func timeoutOption(d time.Duration) time.Duration {
	switch d {
	case 0:
		return -1
	case -1:
		return -2
	default:
		return d
	}
}

// noDone is a context for go-redis without a Done channel, which would cost a timer. netConn and
// the dialer watch the context instead.
type noDone struct{ context.Context }

func (noDone) Done() <-chan struct{} { return nil }

// A netConn is the own connection of a lane. Its reads end with the context of the lane's caller.
type netConn struct {
	net.Conn
	own    *ownClient
	failed error     // why dialing failed, or nil
	until  time.Time // when reading ends, or zero
}

// Write implements net.Conn.
func (c *netConn) Write(b []byte) (int, error) {
	if c.failed != nil {
		return 0, c.failed
	}
	return c.Conn.Write(b)
}

// SetReadDeadline implements net.Conn. It makes an instant of the monotonic clock of t, so that
// Read ends in time even if the wall clock is set. If the caller's context has a deadline, that
// counts instead of the client's ReadTimeout: the server may be slow.
func (c *netConn) SetReadDeadline(t time.Time) error {
	c.until = time.Time{}
	if deadline, ok := c.own.call().Deadline(); ok && !t.IsZero() {
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
	_ = c.SetReadDeadline(t) // it cannot fail
	return c.SetWriteDeadline(t)
}

// Read implements net.Conn. It ends soon after the context of the lane's caller. That caller has to
// disconnect: the answer under way is not for the next caller.
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
		if err := c.own.call().Err(); err != nil {
			return 0, err
		}
	}
}

// isTimeout reports whether a read has ended at its deadline. The errors of some transports are not
// os.ErrDeadlineExceeded.
func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}
