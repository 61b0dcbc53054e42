package redisstore

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// slowFor is for how long a server counts as slow after the client's ReadTimeout ended a call.
	slowFor = time.Minute
	// connectAtMost bounds the time in which a new connection is set up. Its round trips do not
	// count against a request.
	connectAtMost = 30 * time.Second
)

// A slowMode has the clients that calls use instead of the application's client while the server is
// slow. A slow server is not away: how long an answer may take depends on the lease.
type slowMode struct {
	client func() *redis.Client
	// unlimited is for renewals. It has no Limiter: a circuit breaker for the application's
	// commands must not end a lease.
	unlimited func() *redis.Client
	// limit is how long an answer may take before the server counts as slow.
	limit   time.Duration
	noted   atomic.Pointer[time.Time] // when that was last noted
	warming atomic.Bool
}

func newSlowMode(app *redis.Client) *slowMode {
	p := &slowMode{client: sync.OnceValue(func() *redis.Client { return withoutTimeouts(app) }), limit: math.MaxInt64}
	p.unlimited = sync.OnceValue(func() *redis.Client {
		client := withoutTimeouts(app)
		client.Options().Limiter = nil // the options are this client's own
		return client
	})
	if app.Options().ReadTimeout > 0 {
		p.limit = app.Options().ReadTimeout / 2
	}
	return p
}

// withoutTimeouts returns a client on the pool of the application's client. Its calls end with
// their deadlines, and not with the client's time-outs. If the connections have no deadlines, they
// have none here. go-redis does not give it the hooks of that client.
func withoutTimeouts(app *redis.Client) *redis.Client {
	if app.Options().ReadTimeout < 0 {
		return app.WithTimeout(app.Options().ReadTimeout)
	}
	client := app.WithTimeout(0)
	client.Options().ContextTimeoutEnabled = true
	return client
}

// withDeadline returns a context for a client of withoutTimeouts: ctx, or one that ends after the
// application's ReadTimeout if ctx has no deadline.
func withDeadline(ctx context.Context, app *redis.Client) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has || app.Options().ReadTimeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, app.Options().ReadTimeout)
}

// isSlow reports whether the client's ReadTimeout has ended a call lately, or might have.
func (p *slowMode) isSlow() bool {
	last := p.noted.Load()
	return last != nil && time.Since(*last) < slowFor
}

// note notes that a call of the application's client has ended with err. If its context goes on,
// the client's time-out has ended it.
func (p *slowMode) note(ctx context.Context, err error) {
	if p != nil && rediserr.KindOf(err) == driver.KindTimeout && ctx.Err() == nil {
		p.setSlow()
	}
}

// took notes how long an answer has taken, on whatever connection.
func (p *slowMode) took(d time.Duration) {
	if p != nil && d > p.limit {
		p.setSlow()
	}
}

func (p *slowMode) setSlow() {
	now := time.Now()
	p.noted.Store(&now)
}

// warm has the pool connect in the background after a call has ended without an answer. The round
// trips of a connection that is new may have taken all of its time, and the next call would
// connect again.
func (p *slowMode) warm(err error) {
	if p == nil || err == nil || rediserr.KindOf(err) != driver.KindTimeout || !p.warming.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer p.warming.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), connectAtMost)
		defer cancel()
		_ = rediserr.Recovered(func() error { return p.client().Ping(ctx).Err() })
	}()
}
