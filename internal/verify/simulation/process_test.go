package simulation_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-1795987d/onerun/guard"
)

// A process has a Guard and a client for each server, and can be cut off from all of them.
type process struct {
	name    string
	number  int
	world   *world
	cutOff  instant        // until when it is
	stopped instant        // until when it is stopped
	dials   []atomic.Int64 // by server
	clients []redis.UniversalClient
	lockers []io.Closer // of the clients
	do      doer

	mu    sync.Mutex // for what a crash replaces
	life  *life
	ended instant // when it has last crashed
	guard *guard.Guard

	queue queue
	site  site
}

func newProcess(w *world, number int) *process {
	p := &process{name: fmt.Sprintf("p%d", number), number: number, world: w, dials: make([]atomic.Int64, len(w.servers))}
	for _, s := range w.servers {
		p.clients = append(p.clients, p.client(s))
	}
	p.open()
	p.do = func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error {
		return p.current().Do(ctx, key, f, opts...)
	}
	if w.mutate.do != nil {
		p.do = w.mutate.do(p.do)
	}
	if w.cast == adapters {
		p.site = newSite(p)
	}
	p.queue = queue{world: w, waiting: map[string][]*waiter{}}
	return p
}

// open starts a Guard. p.mu must be held, but for the first time.
func (p *process) open() {
	w := p.world
	p.life = new(life)
	locker := w.backend.locker(p)
	if w.mutate.store != nil {
		locker = w.mutate.store(locker, p)
	}
	if w.nodes == nil { // whose messages have instants of their own
		locker = spread(w, p.name, locker)
	}
	locker = record(p, locker)
	if w.mutate.asks != nil {
		locker = w.mutate.asks(locker, p)
	}
	var err error
	p.guard, err = guard.New(locker, guard.WithoutNamespace(), guard.WithLabel(p.name), guard.WithHook(guard.Hook{Release: noteHandOff}))
	if err != nil {
		panic(err)
	}
	if w.pauses() && !w.mutate.awake {
		p.reportSuspensions()
	}
}

// current returns the Guard of the process, which is another one after a crash.
func (p *process) current() *guard.Guard {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.guard
}

func (p *process) client(s *server) *redis.Client {
	return redis.NewClient(&redis.Options{
		// an IP literal, as a name would be looked up
		Addr:   fmt.Sprintf("127.0.0.1:%d", s.number+1),
		Dialer: func(context.Context, string, string) (net.Conn, error) { return p.world.dial(p, s) },

		// Maintenance notifications look up names as well, and the retries' pauses have random
		// numbers of their own.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1,
		DialerRetries:            1,
		DisableIdentity:          true,
		ContextTimeoutEnabled:    true,

		DialTimeout: 100 * time.Millisecond,
		// no multiple of another time-out: two must not end at one instant
		ReadTimeout: 203*time.Millisecond + 17*time.Microsecond,

		// So many connections that no caller waits for one, because the timers of such waiters
		// outlive a bubble, and so many failed dials that a pool does not begin to dial on its
		// own.
		PoolSize: 200, PipelinePoolSize: 200,

		// Small ones, but a request is written at once.
		ReadBufferSize: 1 << 10, WriteBufferSize: largest, PipelineReadBufferSize: 1 << 10, PipelineWriteBufferSize: largest,
	})
}

func (p *process) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := p.guard.Close(ctx); err != nil {
		p.world.violate("I5", "%s: %v", p.name, err)
	}
	for _, l := range p.lockers {
		_ = l.Close()
	}
	for _, c := range p.clients {
		_ = c.Close()
	}
}

// closedBy has the process close a Locker when the process ends.
func closedBy[L interface {
	guard.Locker
	io.Closer
}](p *process, l L) L {
	p.lockers = append(p.lockers, l)
	return l
}
