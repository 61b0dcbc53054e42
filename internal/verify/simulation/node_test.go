package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A node is a memory.Locker behind the network of a world, in place of miniredis: the worlds that
// share keys check the engine and the rules of sharing, and not the scripts of a backend.
type node struct {
	world  *world
	name   string  // "" if it is the only one
	frozen instant // until when it carries out nothing
	away   instant // until when it cannot be reached

	mu     sync.Mutex
	store  *keyStores
	offset time.Duration // of its clock
	epoch  int           // how often its connections were cut
}

func newNode(w *world, i int) *node {
	n := &node{world: w}
	if w.isQuorum() {
		n.name = fmt.Sprintf(" %d", i)
	}
	n.start()
	return n
}

// start starts an empty store. n.mu must be held, but for the first time.
func (n *node) start() {
	n.store = &keyStores{node: n, all: map[string]*memory.Locker{}}
}

// keyStores are the store of a node. In half of the worlds, each key has a fence counter of its
// own, as the keys of a Cluster and the rows of PostgreSQL have. Such a key has a memory.Locker.
type keyStores struct {
	node *node
	all  map[string]*memory.Locker
}

func (s *keyStores) of(key string) *memory.Locker {
	apart := s.node.world.seed/4%2 == 1
	if !apart {
		key = ""
	}
	if s.all[key] == nil {
		s.all[key] = s.node.newStore()
		if apart {
			startAhead(s.all[key], key)
		}
	}
	return s.all[key]
}

// startAhead has the fences of an empty store begin 131 ms ahead of its clock, as those of a server
// do: it may have lost its counter.
func startAhead(store *memory.Locker, key string) {
	c := driver.Claim{Key: key, ID: "counter", TTL: guard.MinTTL, MaxHolders: driver.Unlimited}
	for range 2 {
		grant, _ := store.TryAcquire(context.Background(), c) // it is free, and never fails
		_, _ = store.Release(context.Background(), c, driver.After{})
		c.Fence = grant.Fence + 1<<17
	}
}

// newStore returns an empty store, whose clock is the node's.
func (n *node) newStore() *memory.Locker {
	store := memory.New()
	now := reflect.ValueOf(store).Elem().FieldByName("now")
	clock := func() time.Time { return time.Now().Add(n.offset) } // n.mu is held
	reflect.NewAt(now.Type(), unsafe.Pointer(now.UnsafeAddr())).Elem().Set(reflect.ValueOf(clock))
	return store
}

func (n *node) freeze(d time.Duration) {
	n.world.trace.add("the node%s is frozen for %v", n.name, d)
	n.frozen.set(time.Now().Add(d))
}

// leave makes the node unreachable for a while, and loses what is under way.
func (n *node) leave(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.world.trace.add("the node%s is away for %v", n.name, d)
	n.away.set(time.Now().Add(d))
	n.epoch++
}

// blackout is for how long a node is away at least if it restarts empty: as long as its last fence
// can be ahead of its clock.
const blackout = 66 * time.Millisecond

// restart is a restart without persistence.
func (n *node) restart(d time.Duration) {
	n.leave(blackout + d)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.world.trace.add("the node%s is empty", n.name)
	n.start()
	n.world.lastLoss.set(time.Now())
}

// jump sets the clock forward, which ends leases early, or back, which makes them last longer.
func (n *node) jump(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.world.trace.add("the clock of the node%s jumps by %v", n.name, d)
	n.offset += d
	if d < 0 {
		n.world.setBack -= d
		return
	}
	n.world.lastLoss.set(time.Now())
}

// suspend suspends the hosts of all processes, see world.suspend.
func (n *node) suspend(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offset += d
}

var (
	errReset   = errors.New("connection reset")
	errRefuses = errors.New("connection refused")
	errNoReply = errors.New("no reply")
)

// A life is a process from its start until it crashes. What it sent before that may still arrive.
type life struct{ over atomic.Bool }

// A remote is the node as a process sees it.
type remote struct {
	node    *node
	process *process
	life    *life
}

var (
	_ driver.Async      = remote{}
	_ driver.Subscriber = remote{}
	_ driver.Describer  = remote{}
)

// connect returns the node as the process sees it.
func (n *node) connect(p *process, l *life) guard.Locker { return remote{n, p, l} }

// A reply is the answer to a request, or an error of the network.
type reply[T any] struct {
	answer T
	err    error
}

// exchange sends a request for a claim, which the store carries out if it arrives, even if ctx has
// ended by then. It returns the answer, if that arrives in time.
func exchange[T any](ctx context.Context, r remote, op driver.Op, c driver.Claim, do func(s *keyStores) T) (T, error) {
	w := r.node.world
	replies := make(chan reply[T], 1)
	w.carriers.Add(1)
	go func() {
		defer w.carriers.Add(-1)
		var got reply[T]
		got.err = r.carry(string(op)+c.ID, func(s *keyStores) { got.answer = do(s) })
		replies <- got
	}()
	late := time.NewTimer(203*time.Millisecond + upTo(w.rng(r.node.name+c.ID+time.Now().String()), 100*time.Microsecond))
	defer late.Stop()
	var err error
	select {
	case got := <-replies:
		if got.err == nil {
			return got.answer, nil
		}
		err = got.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-late.C:
		err = errNoReply
	}
	var none T
	return none, driver.NewStoreError("remote", op, c.Key, err)
}

// carry has the node carry out a request. It returns when the reply has arrived, or the error of a
// connection that was cut.
func (r remote) carry(name string, do func(s *keyStores)) error {
	n, w := r.node, r.node.world
	rng := w.rng(n.name + r.process.name + name + time.Now().String())
	if r.life.over.Load() {
		time.Sleep(upTo(rng, time.Millisecond))
		return errReset
	}
	epoch, lost := n.connection(), w.draw(rng)
	w.delay(rng, r.process, &n.frozen)
	if err := r.fail(lost, epoch); err != nil {
		return err
	}
	n.mu.Lock()
	do(n.store)
	n.mu.Unlock()
	lost = w.draw(rng)
	w.delay(rng, r.process, new(instant))
	return r.fail(lost, epoch)
}

func (n *node) connection() (epoch int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.epoch
}

// fail returns the error of a message that has not arrived, or nil.
func (r remote) fail(lost fate, epoch int) error {
	switch {
	case lost == swallowed:
		time.Sleep(time.Second) // and nobody waits for that long
		return errNoReply
	case time.Now().Before(r.node.away.get()):
		return errRefuses
	case lost == cut, r.node.connection() != epoch:
		return errReset
	}
	return nil
}

func (r remote) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return exchange(ctx, r, driver.OpAcquire, c, func(s *keyStores) driver.Answer { return acquireOf(s, c) })
}

func (r remote) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	return exchange(ctx, r, driver.OpRenew, c, func(s *keyStores) bool { return renewOf(s, c) })
}

func (r remote) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return exchange(ctx, r, driver.OpRelease, c, func(s *keyStores) bool { return releaseOf(s, c, after) })
}

// Start makes one request of renewals. In half of the worlds, it does so of other calls, too.
func (r remote) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew && r.node.world.seed%2 == 0 {
		driver.Each{Locker: r}.Start(ctx, op, claims, after, done)
		return
	}
	go func() {
		answers, err := exchange(ctx, r, op, claims[0], func(s *keyStores) []driver.Answer {
			all := make([]driver.Answer, len(claims))
			for i, c := range claims {
				switch op {
				case driver.OpAcquire:
					all[i] = acquireOf(s, c)
				case driver.OpRenew:
					all[i].Held = renewOf(s, c)
				default:
					all[i].Held = releaseOf(s, c, after)
				}
			}
			return all
		})
		if err != nil {
			answers = make([]driver.Answer, len(claims))
		}
		for i := range claims {
			done(i, answers[i], err)
		}
	}()
}

// Subscribe calls notify late, or not at all.
func (r remote) Subscribe(key, id string, notify func(time.Duration)) (stop func()) {
	n, w := r.node, r.node.world
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.store.of(key).Subscribe(key, id, func(in time.Duration) {
		rng := w.rng(id + in.String() + time.Now().String())
		if r.life.over.Load() || w.draw(rng) != arrives || !w.calm() && time.Now().Before(r.process.cutOff.get()) {
			return
		}
		time.AfterFunc(upTo(rng, time.Millisecond), func() { notify(in) })
	})
}

func (r remote) Describe() driver.Description { return memory.New().Describe() }

// These never fail: a memory.Locker fails only if its context has ended.

func acquireOf(s *keyStores, c driver.Claim) driver.Answer {
	grant, _ := s.of(c.Key).TryAcquire(context.Background(), c)
	return grant
}

func renewOf(s *keyStores, c driver.Claim) bool {
	held, _ := s.of(c.Key).Renew(context.Background(), c)
	return held
}

func releaseOf(s *keyStores, c driver.Claim, after driver.After) bool {
	held, _ := s.of(c.Key).Release(context.Background(), c, after)
	return held
}
