package guardcron

import (
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// The pause after an error of the store, at first and at most.
const (
	lookFirst = time.Second
	lookLast  = 10 * time.Second
	// oldPause is the pause between two ticks that are caught up with. In it, ticks that are due
	// in other processes can start.
	oldPause = 50 * time.Millisecond
)

// lookAgain makes a goroutine look at the backlog: the pending ticks that no goroutine handles. It
// asks the store until the store answers.
func (b *job) lookAgain() {
	select {
	case b.look <- struct{}{}:
	default:
	}
	b.mu.Lock()
	starts := !b.looking
	b.looking = true
	b.mu.Unlock()
	if starts && !b.jobs.inBackground(b.lookAround) {
		b.mu.Lock()
		b.looking = false
		b.mu.Unlock()
	}
}

func (b *job) lookAround() {
	var timer <-chan time.Time
	delay := lookFirst
	for {
		select {
		case <-b.look:
		case <-timer:
		case <-b.leaving.Done():
			return
		}
		timer = nil
		switch next, err := b.lookOnce(); {
		case errors.Is(err, errStopped): // Next asks to look again
		case err != nil:
			timer = time.After(delay)
			delay = min(2*delay, lookLast)
		default:
			delay = lookFirst
			if !next.IsZero() {
				timer = time.After(next.Sub(b.now()))
			}
		}
		if timer != nil {
			continue
		}
		b.mu.Lock()
		if len(b.look) == 0 {
			b.looking = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
	}
}

// errStopped means that the Cron was stopped.
var errStopped = errors.New("the Cron was stopped")

// lookOnce handles the backlog, while no other process does so. Otherwise they would
// not run in order. It returns when to look again, or zero.
func (b *job) lookOnce() (next time.Time, err error) {
	if !b.begun {
		if err := b.beginSpec(b.bornAt()); err != nil {
			return time.Time{}, err
		}
	}
	only, err := b.acquire(b.jobs.ctx, b.runKey()+"@catch-up", guard.Forever,
		guard.WithLimit(0), guard.WithLabel(b.runKey()+"@catch-up "+b.who), b.jobs.guard.Adapter().Auxiliary())
	if err != nil {
		return time.Time{}, err
	}
	defer func() { _ = only.Release(b.jobs.ctx) }() // it ends by itself otherwise
	if err := b.writeAgain(); err != nil {
		return time.Time{}, err
	}
	if b.announcementIsDue() {
		if err := b.announce(); err != nil {
			return time.Time{}, err
		}
	}
	if !b.announced {
		b.announced = true
		b.watchTriggers()
	}
	k, err := b.readKnown(only.Context())
	if err == nil && !b.checked {
		if err = b.endRunsByHand(); err == nil {
			err = b.findMissed(k)
		}
	}
	if err != nil {
		return time.Time{}, err
	}
	if next, err = b.handleBacklog(only.Context(), k); err == nil {
		err = b.mark()
	}
	return next, err
}
