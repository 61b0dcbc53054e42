package redisstore

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// A pooled connection is one that renewals take from the pool of the user's client, and keep while
// they use it: the application may have taken all others when the next renewal is due.
type pooled struct {
	client func() *redis.Client // on the pool
	inUse  chan struct{}        // has something in it while a caller uses conn
	conn   *redis.Conn          // or nil
	since  time.Time            // when conn was taken from the pool
	idle   *time.Timer          // releases the connection
}

// newPooled returns a connection from the pool of the user's client. Its calls end with their
// deadlines, and the user's Limiter does not refuse them: a circuit breaker for the application's
// commands must not end a lease.
func newPooled(user *redis.Client) *pooled {
	client := sync.OnceValue(func() *redis.Client {
		client := patient(user)
		client.Options().Limiter = nil // the client's own options
		return client
	})
	return &pooled{client: client, inUse: make(chan struct{}, 1)}
}

// unlimited returns the client on the pool, which has no Limiter.
func (p *pooled) unlimited() client { return p.client() }

// use calls f with the connection, or with the client if another caller uses that, or if the pool
// has only one. f returns the error that makes a connection unfit, or nil.
func (p *pooled) use(f func(client) error) {
	client := p.client()
	if poolSize(client) <= 1 {
		_ = f(client)
		return
	}
	select {
	case p.inUse <- struct{}{}:
	case <-time.After(lateAfter):
		_ = f(client)
		return
	}
	defer func() { <-p.inUse }()
	if most := client.Options().ConnMaxLifetime; most > 0 && time.Since(p.since) >= most {
		p.release() // the pool closes it when it is next asked for it
	}
	if p.conn == nil {
		p.conn, p.since = client.Conn(), time.Now()
	}
	if f(p.conn) != nil {
		p.release()
		return
	}
	if p.idle == nil {
		p.idle = time.AfterFunc(renewalIdle, p.releaseIdle)
	} else {
		p.idle.Reset(renewalIdle)
	}
}

// poolSize returns how many connections the client's pool may have.
func poolSize(client *redis.Client) int {
	opt := client.Options()
	if opt.MaxActiveConns > 0 {
		return min(opt.PoolSize, opt.MaxActiveConns)
	}
	return opt.PoolSize
}

// releaseIdle releases the connection if no caller uses it.
func (p *pooled) releaseIdle() {
	select {
	case p.inUse <- struct{}{}:
		p.release()
		<-p.inUse
	default: // use sets the timer again
	}
}

// release returns the connection to the pool, which closes it if it is unfit.
func (p *pooled) release() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}
