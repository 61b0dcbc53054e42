// Package queue decides what a call that wants a key does next: ask the store, rest, take a lease
// that was handed off to it, or give up.
//
// It has two kinds of Waiter. A Local one waits in the queue of its process, in which only the
// head asks the store. A Fair one waits in the queue of the store. A call that does not wait for a
// busy key has only Retries. None of them has a goroutine, a timer, a lock, or a connection: the
// caller serializes all calls, passes the time, and carries out each Step. So each can be tested
// by itself.
package queue

import (
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
)

// A Waiter is one call's way to a key. The caller repeats Next, carries out the Step, and reports
// the store's answer to each request by Answer, unless the key was granted. However the call ends,
// it calls Leave.
type Waiter interface {
	// Next returns what to do at the instant now.
	Next(now time.Duration) Step
	// Answer notes the answer to the request for which Next returned Ask.
	Answer(now time.Duration, a Answer)
	// Renamed notes that the claim has another ID.
	Renamed()
	// Leave ends the wait. It reports whether a lease was handed off to the waiter, and not taken.
	// Calling it again does nothing.
	Leave() (offered bool)
}

// A Move is the kind of a Step.
type Move uint8

const (
	// Rest is to sleep until Step.Until, or until Step.Wake has a value, and then to call Next
	// again.
	Rest Move = iota
	// Announce is to report that the call waits, as Step.Grant says. It comes once, if
	// Limits.Announce is set. Until Next is called again, other waiters overtake.
	Announce
	// Ask is to ask the store once.
	Ask
	// Take is to take the lease that was handed off to the waiter. The waiter has left its queue.
	Take
	// Quit is to give up, with Step.Err if it is not nil, or else because the key is busy or done,
	// as Step.Grant says. The waiter has left its queue.
	Quit
)

// A Step is what a waiter does next.
type Step struct {
	Move  Move
	Until time.Duration
	Wake  <-chan struct{}
	// Subscribe, if not nil, is to be started before the rest.
	Subscribe *Subscription
	// Waiting, of a Rest, means that the call waits for a key that is taken, rather than for an
	// answer. Grant is what is known of the holder.
	Waiting bool
	Grant   driver.Answer
	Err     error

	// Reserve, of an Ask, means that other calls are waiting, or tend to, so that fences reserved
	// for them would be used.
	Reserve bool
	// Unprompted, of an Ask, means that the waiter asks because of the time alone, although it has
	// subscribed: nothing has notified it.
	Unprompted bool
	// Previous, of an Ask, is the last known holder.
	Previous Previous
}

// Previous is the last known holder of a key: its label, and when its lease ends, which is
// clock.Never if it is unknown.
type Previous struct {
	Label string
	Ends  time.Duration
}

// An Answer is the store's answer to a request that was not granted.
type Answer struct {
	Grant driver.Answer // Busy or Done
	Err   error         // if the store did not answer
	Took  time.Duration // how long the request took
}

// A Holder is a lease of this process.
type Holder interface {
	// Busy returns what the store would answer to the claim of another.
	Busy(now time.Duration) driver.Answer
}

// ErrUnanswered is the Step.Err of a call whose time was up before the store had answered those
// ahead of it.
var ErrUnanswered = errors.New("the store has not answered earlier calls of this process")

const (
	// tries is how many requests without an answer a call makes whose time to wait is up.
	tries = 3
	// undecidedTries is how many requests a call makes for a key that nobody seems to hold, if its
	// time to wait is up.
	undecidedTries = 10
)

// Limits are the settings of a wait.
type Limits struct {
	// Deadline is until when the call waits for a busy key.
	Deadline time.Duration
	// GiveUp is until when it waits for an answer. It is not before the Deadline.
	GiveUp time.Duration
	// Announce asks for one step Announce if the call waits.
	Announce bool
}

// Retries decides whether a call makes another request after one that has decided nothing: the
// store did not answer, or nobody seems to hold the key.
type Retries struct {
	Limits
	jitter    *jitter.Source
	failures  int // requests in a row without an answer
	undecided int // answers that nobody seems to hold the key
}

// NewRetries returns the Retries of a call with these limits.
func NewRetries(j *jitter.Source, l Limits) Retries { return Retries{Limits: l, jitter: j} }

// After returns how long to pause before the next request of a call that does not wait for a busy
// key. It returns false if the answer is final.
func (r *Retries) After(now time.Duration, a Answer) (pause time.Duration, again bool) {
	switch {
	case a.Err != nil:
		return r.retry(now, a.Err, false)
	case !a.Grant.Reason.IsUndecided() || r.undecided >= undecidedTries || now >= r.GiveUp:
		return 0, false
	}
	r.failures = 0
	r.undecided++
	return max(0, a.Grant.Left), true
}

// retry notes a request without an answer. It returns how long to pause before the next one, or
// false if there will be none.
func (r *Retries) retry(now time.Duration, err error, impatient bool) (pause time.Duration, again bool) {
	r.failures++
	pause = r.jitter.Retry(r.failures)
	at := now + pause
	switch {
	case Permanent(err):
		return 0, false
	case at < r.Deadline:
		return pause, true
	default:
		return pause, at < r.GiveUp && r.failures < tries && !impatient
	}
}

// base is what both kinds of Waiter have in common.
type base struct {
	Retries
	wake      chan struct{} // nil until the waiter first rests
	announces bool          // it has yet to announce that it waits
	previous  Previous
	result    *Answer // why it gives up; nil until it does
}

func (b *base) init(r Retries) {
	*b = base{Retries: r, announces: r.Announce, previous: Previous{Ends: clock.Never}}
}

// signal wakes the waiter if it rests. One that does not will call Next before it does.
func (b *base) signal() {
	select {
	case b.wake <- struct{}{}: // never, while wake is nil
	default:
	}
}

// waking returns the channel by which signal wakes the waiter.
func (b *base) waking() <-chan struct{} {
	if b.wake == nil {
		b.wake = make(chan struct{}, 1)
	}
	return b.wake
}

// busy notes who holds the key. A claim that was merely notified does not hold it, and nobody seems
// to if the answer is undecided.
func (b *base) busy(now time.Duration, g driver.Answer) {
	b.failures = 0
	if g.Reason != driver.OtherNotified && !g.Reason.IsUndecided() {
		b.previous = previous(now, g)
	}
}

func previous(now time.Duration, g driver.Answer) Previous {
	p := Previous{Label: g.Label, Ends: clock.Never}
	if g.Left >= 0 {
		p.Ends = now + g.Left
	}
	return p
}

func (b *base) quit() Step { return Step{Move: Quit, Grant: b.result.Grant, Err: b.result.Err} }

// Permanent reports whether err says that asking again cannot help.
func Permanent(err error) bool {
	var store *driver.StoreError
	return errors.As(err, &store) && store.Kind.Permanent()
}
