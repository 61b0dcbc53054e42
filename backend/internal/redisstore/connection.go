package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

const (
	// shortIdle is for how long a connection for claims and releases stays without being used, and
	// busyAfter how many requests make it worth having, with less than that between them.
	// Occasional callers use the user's client.
	shortIdle = 500 * time.Millisecond
	busyAfter = 10
	// renewalIdle is the same for renewals, of which the next one comes after a third of a TTL.
	renewalIdle = 15 * time.Second
	// connectWithin is for how long a renewal waits for the connection to connect, less than
	// shortIdle. Connecting goes on for up to connectAtMost: its round trips do not count against
	// a request, and the next one finds it connected.
	connectWithin = 400 * time.Millisecond
	connectAtMost = 30 * time.Second
	// lookEvery is how often a connection in use looks whether the user's client was closed.
	lookEvery = 5 * time.Millisecond
)

// A connection is one of our own to the server of the user's client, for one user at a time. It
// needs none of the connections that the application may have taken all. Its user reads and writes
// in its own goroutine: having another one do that costs as much again as the round trip, and a
// read of go-redis does not end with its context.
//
// It connects when it is needed, and disconnects when it has not been used for some time, or the
// user's client was closed. While it is not connected, everything uses the user's client.
type connection struct {
	user     *redis.Client
	stays    time.Duration // for how long it stays connected unused
	renewals bool          // it connects at once, and its users wait for it
	inUse    chan struct{} // has something in it while the connection is used
	conn     atomic.Pointer[netConn]
	// connecting is set while the connection connects.
	connecting atomic.Bool
	mu         sync.Mutex

	// These belong to the connection's user.
	client    *redis.Client // with one connection, or nil so far
	setups    []func(*redis.Client)
	ctx       context.Context // ends what is under way; mu is held to change it
	connected bool
	used      time.Time
	looked    time.Time // when the user's client was last seen at work
	asked     time.Time
	inRow     int       // how many asked, one soon after the other
	tried     time.Time // when connecting last began
	watched   bool      // clean is to come
	sender    sender
	one       [1]*request // a batch
}

func newConnection(user *redis.Client, stays time.Duration) *connection {
	return &connection{
		user: user, stays: stays, renewals: stays == renewalIdle,
		inUse: make(chan struct{}, 1), ctx: context.Background(),
	}
}

// setUp makes the client, or returns an error if that could not be set up.
func (c *connection) setUp() (err error) {
	if c.client != nil {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a panic: %v", p)
		}
	}()
	client := c.newClient()
	for _, f := range c.setups {
		f(client)
	}
	c.client = client
	return nil
}

// take gives the caller the connection if it is free and connected, and has it connect if it is
// asked for often. The caller calls release.
func (c *connection) take(ctx context.Context) bool {
	if c.renewals {
		return c.wait(ctx, lateAfter)
	}
	select {
	case c.inUse <- struct{}{}:
	default:
		return false
	}
	now := time.Now()
	if c.usable(now) {
		c.used = now
		c.call(ctx)
		return true
	}
	if now.Sub(c.asked) >= shortIdle {
		c.inRow = 0
	}
	c.asked = now
	c.inRow++
	if !c.connected && c.inRow >= busyAfter && now.Sub(c.tried) >= shortIdle {
		go func() { // the caller uses the user's client, which is connected
			defer func() { <-c.inUse }()
			c.connect(ctx)
		}()
		return false
	}
	<-c.inUse
	return false
}

// wait gives the caller the connection, connected, as soon as it is free. It returns false if that
// takes long, or it cannot connect. The caller calls release.
func (c *connection) wait(ctx context.Context, patience time.Duration) bool {
	select {
	case c.inUse <- struct{}{}:
	default:
		late := time.NewTimer(patience)
		defer late.Stop()
		select {
		case c.inUse <- struct{}{}:
		case <-late.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	now := time.Now()
	switch {
	case c.usable(now) && now.Sub(c.used) < shortIdle:
	case !c.connected && now.Sub(c.tried) < shortIdle:
		<-c.inUse
		return false
	case !c.connectFor(ctx): // it asks the server first if the connection has rested
		return false
	}
	c.used = now
	c.call(ctx)
	return true
}

// connectFor connects for a caller, which gets the connection if that succeeds soon. Otherwise
// connecting goes on without the caller.
func (c *connection) connectFor(ctx context.Context) bool {
	connected, left := make(chan bool), make(chan struct{})
	go func() {
		ok := false
		defer func() { // also if what the client was given ends the goroutine
			if !ok {
				<-c.inUse
			}
			select {
			case connected <- ok:
			case <-left:
				if ok {
					<-c.inUse
				}
			}
		}()
		ok = c.connect(ctx)
	}()
	soon := time.NewTimer(connectWithin)
	defer soon.Stop()
	select {
	case ok := <-connected:
		return ok
	case <-soon.C:
	case <-ctx.Done():
	}
	close(left)
	return false
}

// call notes the context of the connection's user.
func (c *connection) call(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx = ctx
}

// calling returns that context, for a dialer: go-redis may dial for longer than it is used.
func (c *connection) calling() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ctx
}

// userGone reports whether the user's client has no connection: it may have been closed. If not,
// it connects when we use it.
func (c *connection) userGone() bool { return c.user.PoolStats().TotalConns == 0 }

// userHasNoneLeft reports whether the application has taken all connections of the user's client.
func (c *connection) userHasNoneLeft() bool {
	stats := c.user.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= poolSize(c.user)
}

// usable reports whether it is connected, while the user's client is, too.
func (c *connection) usable(now time.Time) bool {
	switch {
	case !c.connected:
		return false
	case now.Sub(c.used) >= c.stays:
		c.disconnect()
		return false
	case now.Sub(c.looked) < lookEvery:
		return true
	}
	if c.userGone() {
		return false
	}
	c.looked = now
	return true
}

// connect connects if it is not connected, and asks the server whether the connection is good. An
// old one may be broken: then it connects again. It has as much time as the call that needs the
// connection.
func (c *connection) connect(needed context.Context) bool {
	c.tried = time.Now()
	if c.setUp() != nil || c.userGone() {
		return false
	}
	within := connectAtMost
	if deadline, ok := needed.Deadline(); ok {
		within = min(max(time.Until(deadline), connectWithin), within)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(needed), within)
	defer cancel()
	c.connecting.Store(true)
	defer c.connecting.Store(false)
	c.call(ctx)
	err := c.ping(ctx)
	if spoilt(err) && ctx.Err() == nil {
		err = c.ping(ctx)
	}
	c.connected = err == nil || redis.HasErrorPrefix(err, "NOPERM")
	c.call(context.Background())
	c.used = time.Now()
	if c.connected && !c.watched {
		c.watched = true
		time.AfterFunc(shortIdle, c.clean)
	}
	return c.connected
}

// ping asks the server for an answer.
func (c *connection) ping(ctx context.Context) error {
	return rediserr.Recovered(func() error { return c.client.Ping(ctx).Err() })
}

// release ends the caller's use, which has ended with err.
func (c *connection) release(err error) {
	c.call(context.Background())
	c.used = time.Now()
	if spoilt(err) {
		c.disconnect() // it is no good, and the next one may take long to make
	}
	<-c.inUse
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

// disconnect closes the connection. go-redis notices when it is to use it again.
func (c *connection) disconnect() {
	c.connected, c.inRow = false, 0
	if conn := c.conn.Load(); conn != nil {
		_ = conn.Close() // all it could say is that it is closed
	}
}

// close closes the client. Whoever uses the connection all the same gets redis.ErrClosed.
func (c *connection) close() {
	c.inUse <- struct{}{}
	defer func() { <-c.inUse }()
	c.connected = false
	if c.client != nil {
		_ = c.client.Close() // all it could say is that it is closed
	}
}

// clean disconnects if the connection is not needed any more.
func (c *connection) clean() {
	select {
	case c.inUse <- struct{}{}:
	default:
		time.AfterFunc(shortIdle, c.clean)
		return
	}
	defer func() { <-c.inUse }()
	idle := time.Since(c.used)
	if c.connected && (idle >= c.stays || c.userGone()) {
		c.disconnect()
	}
	if c.watched = c.connected; c.watched {
		time.AfterFunc(min(shortIdle, max(c.stays-idle, shortIdle/10)), c.clean)
	}
}
