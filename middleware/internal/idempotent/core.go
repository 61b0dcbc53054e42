package idempotent

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A Core is what a middleware keeps for all of its calls. It is safe for concurrent use.
type Core struct {
	*Settings
	Name string // the kind of work, unless it is that of the call

	guard   *guard.Guard
	first   []guard.Option // for the first attempt, which does not wait
	waiting []guard.Option // for the second attempt, which waits
	queue   waiters
	breaker breaker
	sealer  *sealer // nil if records are not encrypted
	quota   *quota  // nil if records are not bounded
	unnamed bool    // neither the Guard nor WithLease has a name
	failed  error   // tells the Guard that the handler failed, and that nothing is kept
	left    error   // the client had left when the lease was granted
}

// New returns the Core for settings that have been checked. All that cannot work is in one error,
// of *guard.SettingError.
func New(g *guard.Guard, s *Settings) (*Core, error) {
	c := &Core{
		Settings: s,
		guard:    g,
		queue:    newWaiters(s),
		breaker: breaker{
			epoch: time.Now(),
			open:  fmt.Errorf("%s: %w: it did not answer less than %v ago", s.Adapter.Package(), guard.ErrStore, openPause),
		},
		failed: errors.New(s.Adapter.Package() + ": the handler failed, and nothing is kept"),
		left:   errors.New(s.Adapter.Package() + ": the request ended before its handler began"),
	}
	s.Prints, s.Records = s.OwnPrint || s.Mode == idempotency.Replay && !s.NoPrint, -1
	if s.Mode == idempotency.Replay {
		s.Records = s.MaxAnswer
	}
	var err error
	c.sealer, err = newSealer(s.Encryption)
	s.Err = errors.Join(s.Err, err)
	if g != nil {
		c.set(g)
	}
	if s.Err != nil {
		return nil, s.Err
	}
	return c, nil
}

// set sets the options of leases, and what else depends on the Guard.
func (c *Core) set(g *guard.Guard) {
	s := c.Settings
	lease := append(slices.Clone(s.Lease), g.Adapter().Detached())
	if s.Mode != idempotency.Exclusive {
		lease = append(lease, guard.WithOnce(s.Retention))
	}
	if c.Name = g.Adapter().Name(s.Lease...); c.Name == "" {
		c.Name, c.unnamed = string(s.Adapter), true
		lease = append(lease, guard.WithName(c.Name))
	}
	c.waiting = append(slices.Clip(lease), guard.WithWait(s.Wait))
	c.first = append(slices.Clip(lease), guard.WithWait(0))
	check := c.first
	if s.Mode != idempotency.Exclusive { // a limit was refused by its own name
		check = append(slices.Clip(check), guard.WithLimit(0))
	}
	if s.Wait > 0 && !s.Shadow {
		c.first = append(slices.Clip(c.first), g.Adapter().Probe())
	}
	s.Err = errors.Join(s.Err, g.Adapter().Check(s.unused(), s.Lease...), g.Check(string(s.Adapter), check...))
	if s.ScopeRecords > 0 {
		c.quota = newQuota(g, s)
	}
}

// waiters counts the calls that wait: in all, of a scope and of a key. So a scope cannot use up the
// places of the others.
type waiters struct {
	all, perScope, perKey int // the bounds

	mu     sync.Mutex
	total  int
	scopes map[string]int // only those that have a waiter
	keys   map[string]int // only those that have a waiter
}

func newWaiters(s *Settings) waiters {
	return waiters{all: s.Waiters, perScope: s.scopeWaiters(), perKey: s.KeyWaiters, scopes: map[string]int{}, keys: map[string]int{}}
}

// enter counts one more waiter for the key, and reports whether that is allowed. If it is, leave
// must follow.
func (w *waiters) enter(scope, key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.total >= w.all || w.scopes[scope] >= w.perScope || w.keys[key] >= w.perKey {
		return false
	}
	w.total++
	w.scopes[scope]++
	w.keys[key]++
	return true
}

func (w *waiters) leave(scope, key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total--
	if w.scopes[scope]--; w.scopes[scope] == 0 {
		delete(w.scopes, scope)
	}
	if w.keys[key]--; w.keys[key] == 0 {
		delete(w.keys, key)
	}
}
