package simulation_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-1795987d/onerun/guard"
)

// A process has a Guard and a client for each server, and can be cut off from all of them.
type process struct {
	name    string
	world   *world
	cutOff  instant        // until when it is
	stopped instant        // until when it stands still
	dials   []atomic.Int64 // by server
	clients []redis.UniversalClient
	guard   *guard.Guard
	do      doer
	queue   queue
	site    site
}

func newProcess(w *world, number int) *process {
	p := &process{name: fmt.Sprintf("p%d", number), world: w, dials: make([]atomic.Int64, len(w.servers))}
	for _, s := range w.servers {
		p.clients = append(p.clients, p.client(s))
	}
	locker := w.backend.locker(p)
	if w.mutate.store != nil {
		locker = w.mutate.store(locker, p)
	}
	locker = record(p, spread(w, p.name, locker))
	if w.mutate.asks != nil {
		locker = w.mutate.asks(locker, p)
	}
	var err error
	p.guard, err = guard.New(locker, guard.WithLabel(p.name), guard.WithHook(guard.Hook{Release: noteHandOver}))
	if err != nil {
		panic(err)
	}
	if w.cast == pauses && !w.mutate.awake {
		p.hearOfSuspensions()
	}
	p.do = p.guard.Do
	if w.mutate.do != nil {
		p.do = w.mutate.do(p.do)
	}
	if w.cast == adapters {
		p.site = newSite(p)
	}
	p.queue = queue{world: w, waiting: map[string][]*waiter{}}
	return p
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

		// So many connections that none is waited for, as the timers of those who wait outlive a
		// bubble, and so many failed dials that a pool does not begin to dial on its own.
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
	for _, c := range p.clients {
		_ = c.Close()
	}
}
