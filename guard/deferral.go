package guard

import (
	"errors"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Deferral is for work that an adapter does without a lease, because the store has not answered
// in time. The store may have granted the claim all the same, or may still do so. That claim then
// keeps other processes away from the key, so the Guard releases it only when the work has ended.
// It is not renewed: it ends with its TTL at the latest. A Deferral is safe for concurrent use.
type Deferral struct {
	guard *Guard

	// Guard.mu guards what follows.
	err     error
	orphans []orphan
}

// Defer returns a Deferral for calls of the Guard. End must be called.
func (a Adapter) Defer() *Deferral { return &Deferral{guard: a.guard} }

// Option returns the option for a call after which the work may be done without a lease.
func (d *Deferral) Option() Option { return func(s *settings) { s.deferral = d } }

// Err returns the error of the last request that the calls have made to the store. It is nil if the
// store has answered that request, or if there was none. If a request ended only because its call
// did, the error of the one before counts.
func (d *Deferral) Err() error {
	d.guard.mu.Lock()
	defer d.guard.mu.Unlock()
	return d.err
}

// End says that the work has ended, or is not done at all. The Guard releases in the background
// what the store may have granted. Until then, Close waits, as for a function that runs. End can be
// called again.
func (d *Deferral) End() {
	g := d.guard
	g.mu.Lock()
	orphans := d.orphans
	d.orphans = nil
	delete(g.deferrals, d)
	g.mu.Unlock()
	if len(orphans) == 0 {
		return
	}
	defer g.active.add(-1)
	for _, o := range orphans {
		g.cleaner.add(o)
	}
}

func (d *Deferral) note(err error) {
	d.guard.mu.Lock()
	defer d.guard.mu.Unlock()
	var store *StoreError
	if errors.As(err, &store) && store.Kind == driver.KindCanceled && d.err != nil {
		return
	}
	d.err = err
}

// orphaned leaves an orphan to the Deferral, or to the cleaner if d is nil.
func (g *Guard) orphaned(o orphan, d *Deferral) {
	if d == nil {
		g.cleaner.add(o)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(d.orphans) == 0 {
		g.active.add(1)
		g.deferrals[d] = d.End
	}
	d.orphans = append(d.orphans, o)
}
