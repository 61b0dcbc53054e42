package redisstore

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
)

const (
	// shortIdle is how long a lane for claims and releases stays connected without being used. A
	// lane connects after busyAfter requests with less than that between them. Occasional callers
	// use the application's client.
	shortIdle = 500 * time.Millisecond
	busyAfter = 10
	// renewalIdle is the same for renewals. The next renewal comes after a third of a TTL.
	renewalIdle = 15 * time.Second
	// connectWithin is how long a claim waits for its lane to connect if the application uses up
	// its pool. Connecting goes on for up to connectAtMost, and the next one finds it connected.
	connectWithin = 400 * time.Millisecond
	// lateAfter is how long a batch may be out before the next one starts regardless: the
	// connection may be dead, or the server frozen.
	lateAfter = 50 * time.Millisecond
)

// A lane is one connection to the server of the application's client, for one caller at a time. It
// connects if it is needed, and disconnects after it was idle. Until it is connected, callers use
// the application's client.
//
// A lane has a connection of its own if that is possible: the application may use up all
// connections of its pool. Otherwise it keeps one of that pool.
type lane struct {
	app    *redis.Client   // the application's client
	idle   time.Duration   // how long the lane stays connected unused
	inUse  chan struct{}   // has an element while a caller uses the lane
	closed context.Context // ends when the lane is closed, by end
	end    context.CancelFunc
	own    *ownClient           // makes its own connections, or nil:
	pool   func() *redis.Client // its pool has the connection

	// The caller that uses the lane owns these.
	conn    client    // nil while the lane is not connected
	since   time.Time // when it connected
	used    time.Time
	asked   time.Time
	inRow   int       // requests with less than shortIdle between them
	tried   time.Time // when connecting last began
	watched bool      // a timer will call disconnectIdle
	sender  sender
	one     [1]*request // a batch
}

func newLane(app *redis.Client, idle time.Duration) *lane {
	l := &lane{app: app, idle: idle, inUse: make(chan struct{}, 1)}
	l.own = &ownClient{app: app, idle: idle, ctx: context.Background()}
	l.closed, l.end = context.WithCancel(context.Background())
	return l
}

// newPoolLane returns a lane for renewals that keeps a connection of a pool.
func newPoolLane(app *redis.Client, pool func() *redis.Client) *lane {
	l := newLane(app, renewalIdle)
	l.own, l.pool = nil, pool
	return l
}

// take gives the caller the lane if it is free and connected. A lane for renewals connects if it
// has to; another one does if callers ask for it often. The caller calls release.
func (l *lane) take(ctx context.Context) bool {
	if l.idle == renewalIdle {
		return l.wait(ctx, lateAfter)
	}
	if !l.tryEnter() {
		return false
	}
	now := time.Now()
	if l.isConnected(now) {
		l.used = now
		l.own.setCall(ctx)
		return true
	}
	if now.Sub(l.asked) >= shortIdle {
		l.inRow = 0
	}
	l.asked = now
	l.inRow++
	if l.inRow >= busyAfter && now.Sub(l.tried) >= shortIdle {
		go l.connect(ctx) // until then, callers use the application's client
	} else {
		l.free()
	}
	return false
}

// wait gives the caller the lane, connected, as soon as it is free. It returns false if that takes
// longer than within, or if the lane cannot connect. The caller calls release.
func (l *lane) wait(ctx context.Context, within time.Duration) bool {
	if !l.enter(ctx, within) {
		return false
	}
	switch now := time.Now(); {
	case l.isConnected(now):
	case l.own == nil: // the first command takes a connection, if possible one that is there
		l.conn, l.since = l.pool().Conn(), now
		l.watch()
	case now.Sub(l.tried) < shortIdle:
		l.free()
		return false
	default:
		go l.connect(ctx) // goes on if the caller leaves
		if !l.enter(ctx, within) {
			return false
		}
		if l.conn == nil {
			l.free()
			return false
		}
	}
	l.used = time.Now()
	l.own.setCall(ctx)
	return true
}

func (l *lane) tryEnter() bool {
	select {
	case l.inUse <- struct{}{}:
		return true
	default:
		return false
	}
}

// enter waits until no other caller uses the lane. It returns false if that takes longer than
// within. The caller calls free.
func (l *lane) enter(ctx context.Context, within time.Duration) bool {
	if l.tryEnter() {
		return true
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case l.inUse <- struct{}{}:
		return true
	case <-late.C:
	case <-ctx.Done():
	}
	return false
}

// appPoolExhausted reports whether the application uses all connections of its client.
func (l *lane) appPoolExhausted() bool {
	stats := l.app.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= poolSize(l.app)
}

// isConnected reports whether the lane is connected. It disconnects if the connection is too old.
func (l *lane) isConnected(now time.Time) bool {
	life := l.app.Options().ConnMaxLifetime
	if l.conn != nil && (now.Sub(l.used) >= l.idle || life > 0 && now.Sub(l.since) >= life) {
		l.disconnect()
	}
	return l.conn != nil
}

// connect makes the lane's own connection, and frees the lane. It does not end with the call that
// needs it: on a slow link, the call would end first, and so would that of the next try. It ends
// when the lane is closed.
func (l *lane) connect(needed context.Context) {
	defer l.free()
	l.tried = time.Now()
	if l.closed.Err() != nil || l.own.setUp() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(needed), connectAtMost)
	defer cancel()
	defer context.AfterFunc(l.closed, cancel)()
	l.own.setCall(ctx)
	defer l.own.setCall(context.Background())
	err := errAborted // stays if a hook ends the goroutine
	defer func() {
		if err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
			l.disconnect()
		}
	}()
	l.conn, l.since = l.own.client, time.Now()
	ping := func() error { return l.conn.Process(ctx, redis.NewStatusCmd(ctx, "ping")) }
	if err = rediserr.Recovered(ping); connError(err) && ctx.Err() == nil {
		err = rediserr.Recovered(ping) // the first one was sent on a connection that was closed
	}
	l.used = time.Now()
	l.watch()
}

// watch has disconnectIdle called from now on.
func (l *lane) watch() {
	if !l.watched {
		l.watched = true
		time.AfterFunc(shortIdle, l.disconnectIdle)
	}
}

// disconnect closes the connection, or returns it to its pool. The pool closes it if it is broken.
func (l *lane) disconnect() {
	if kept, ok := l.conn.(*redis.Conn); ok {
		_ = kept.Close()
	} else if l.own != nil {
		l.own.disconnect()
	}
	l.conn, l.inRow = nil, 0
}

// disconnectIdle disconnects if nothing has used the lane for some time.
func (l *lane) disconnectIdle() {
	if !l.tryEnter() {
		time.AfterFunc(shortIdle, l.disconnectIdle)
		return
	}
	defer l.free()
	if l.watched = l.isConnected(time.Now()); l.watched {
		rest := l.idle - time.Since(l.used)
		time.AfterFunc(min(shortIdle, max(rest, shortIdle/10)), l.disconnectIdle)
	}
}

// close disconnects as soon as no caller uses the lane. It never connects again: an own client
// returns redis.ErrClosed.
func (l *lane) close() {
	l.end()
	if !l.tryEnter() {
		return // free calls close
	}
	l.disconnect()
	if l.own != nil && l.own.client != nil {
		_ = l.own.client.Close()
	}
	<-l.inUse
}

// send sends a batch for the caller that uses the lane, and releases the lane.
func (l *lane) send(ctx context.Context, to *endpoint, batch []*request) {
	err := errAborted // unless sendSafely returns
	defer func() { l.release(err) }()
	if l.own != nil {
		ctx = noDone{ctx}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = withDeadline(ctx, l.app)
		defer cancel()
	}
	err = to.sendSafely(ctx, l.conn, &l.sender, batch)
}

// release ends the caller's use of the lane. err is that of the use.
func (l *lane) release(err error) {
	l.own.setCall(context.Background())
	l.used = time.Now()
	if connError(err) {
		l.disconnect()
	}
	l.free()
}

// free lets the next caller use the lane.
func (l *lane) free() {
	<-l.inUse
	if l.closed.Err() != nil {
		l.close()
	}
}
