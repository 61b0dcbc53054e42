package guard

import (
	"context"
	"fmt"
	"time"
)

// WithFair has calls that wait for the key (WithWait) served in the order in which they came, across all processes: first come,
// first served. They stand in a line that the store keeps, and only the first of it is woken when the key is free.
//
// A call asks the store once when it comes, and if the key is busy it begins to listen, asks once more, and then sleeps until it is called; beside that
// it asks once in half a TTL at most, by which it also keeps its place. A lease of such a call is not handed over inside the
// process, as that would overtake others: each costs its two round trips.
//
// Who has died or is frozen holds up the line for less than a second: where his connection has gone he is passed over at once, and where it has not
// the next takes over when he does not come. Who comes back within his TTL, and had not been called, still has his place. A place that was not heard of for a
// TTL is lost.
//
// A call that does not wait is told that the key is busy also if it is free and somebody stands in line. Calls without WithFair do not see the line: they
// may overtake, and what they release is noticed late. So give it to New, or to all calls for a key. It does not change who may hold the key, nor for how
// long.
//
// New, or the call, returns a *SettingError if the store cannot do it (Queuer): backend/memory, single and reentrant can, backend/redlock, whose nodes may
// each see another order, cannot. Default: only calls of one Guard are served in order, see WithWait.
func WithFair() Option { return func(s *settings) { s.fair = true } }

// checkFair returns a *SettingError if set asks for an order that the store does not keep.
func (g *Guard) checkFair(set *settings) error {
	if !set.fair || g.queuer != nil {
		return nil
	}
	return &SettingError{
		Setting: "WithFair", Reason: fmt.Sprintf("the store (%T) keeps no line of those who wait; backend/memory, single and reentrant do", g.locker),
	}
}

// lineOf says how the claim of a call with these settings stands to the store's line.
func lineOf(set *settings) Line {
	switch {
	case !set.fair:
		return Beside
	case set.wait <= 0:
		return Behind
	}
	return Queued
}

const (
	// yieldToEach is how much later one asks, of his own accord, for each who stands before him, so that they can come first, and longestYieldInLine the most of it.
	yieldToEach        = 25 * time.Millisecond
	longestYieldInLine = 200 * time.Millisecond
)

// A turn is what an attempt that stands in the store's line knows of it. Guard.mu guards it, but for placed, polls and stop, which are of the attempt's own goroutine.
type turn struct {
	placed bool          // the store has a place for the claim
	polls  int           // answers of busy
	askAt  time.Duration // when to ask again
	lookAt time.Duration // when to see whether another who was called has come, or never
	called bool          // since the last request was sent
	hears  string        // the ID by which it listens, or ""
	heard  bool          // the store would tell
	stop   func()        // ends listening, or nil
}

// queued reports whether a stands in the store's line.
func (a *attempt) queued() bool { return a.claim.Line == Queued }

// beforeAsking forgets what the answer is going to say, and notes whether a asks again by the clock alone.
func (a *attempt) beforeAsking() {
	a.guard.mu.Lock()
	defer a.guard.mu.Unlock()
	a.looks = a.turn.stop != nil && !a.turn.called && a.turn.lookAt == never
	a.turn.called, a.turn.lookAt = false, never
}

// awaitTurn waits, after an answer that the key is busy, until it may be a's turn, or returns why to give up. ctx is the caller's.
func (a *attempt) awaitTurn(ctx context.Context) error {
	a.tellQueued()
	a.listenForTurn()
	a.turn.polls++
	a.plan()
	for {
		now, until := a.guard.now(), a.nextLook()
		switch {
		case until == 0: // called, if only just in time
			return nil
		case now >= a.deadline:
			return a.outOfTime(now)
		case now >= until:
			return nil
		}
		if err := a.sleepUntil(ctx, min(until, a.deadline)); err != nil {
			return err
		}
	}
}

// plan sets when to ask again, unless a is called before.
func (a *attempt) plan() {
	g := a.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &a.turn
	pause := g.dice.linePause(a.claim.TTL, a.last.Left, a.last.Ahead)
	if !t.heard {
		pause = min(pause, g.dice.pollPause(t.polls, -1))
	}
	t.askAt = g.now() + pause
}

// nextLook returns when to ask again, 0 if a was called.
func (a *attempt) nextLook() time.Duration {
	a.guard.mu.Lock()
	defer a.guard.mu.Unlock()
	if a.turn.called {
		return 0
	}
	return min(a.turn.askAt, a.turn.lookAt)
}

// outOfTime returns the error of a call that has waited for as long as it may.
func (a *attempt) outOfTime(now time.Duration) error {
	left := a.last.Left
	if left > 0 && a.overAt != never {
		left = max(0, a.overAt-now)
	}
	return &BusyError{Key: a.key, Left: left, Label: a.last.Label, Waited: a.waited(now)}
}

// sleepUntil sleeps until an instant or news, or returns why to give up.
func (a *attempt) sleepUntil(ctx context.Context, until time.Duration) error {
	timer := time.NewTimer(until - a.guard.now())
	defer timer.Stop()
	select {
	case <-a.news:
	case <-timer.C:
	case <-ctx.Done():
		return contextEnded(ctx, OpAcquire, a.key)
	case <-a.guard.closing:
		return &ClosedError{Key: a.key}
	}
	return nil
}

// listenForTurn begins to listen, if a does not yet.
func (a *attempt) listenForTurn() {
	g := a.guard
	if a.turn.stop != nil {
		return
	}
	id := a.claim.ID
	g.mu.Lock()
	if a.news == nil {
		a.news = make(chan struct{}, 1)
	}
	a.turn.hears = id
	g.mu.Unlock()
	a.turn.stop = g.queuer.Queue(a.claim.Key, id, func(in time.Duration) { a.hear(id, in) })
}

// hear takes in what the store says to a claim, see Queuer.
func (a *attempt) hear(id string, in time.Duration) {
	g := a.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &a.turn
	if t.hears != id {
		return // it has stopped listening
	}
	t.heard = true
	switch now := g.now(); {
	case in == 0:
		t.called = true
	case in > 0:
		t.lookAt = now + in
	default: // a new holder has come, whose lease has just begun
		t.lookAt, t.askAt = never, max(t.askAt, now+a.claim.TTL/2)
	}
	a.signal()
}

// leaveTurn ends listening.
func (a *attempt) leaveTurn() {
	if a.turn.stop == nil {
		return
	}
	a.turn.stop()
	a.turn.stop = nil
	a.guard.mu.Lock()
	defer a.guard.mu.Unlock()
	a.turn.hears, a.turn.heard = "", false
}

// tellQueued tells the hooks, once, that the call waits for the key.
func (a *attempt) tellQueued() {
	if a.waitFrom != never {
		return
	}
	a.waitFrom = a.guard.now()
	if len(a.set.hooks) > 0 {
		e := a.event(a.waitFrom, nil)
		hooks(a.set.hooks).tell(a.ctx, &e, pickWait)
	}
}

// linePause is how long one with some ahead of him in line waits before he asks for a busy key again, if he is not called: to the end of its
// holder's lease, and a little longer, so that those can ask first, but no longer than half a TTL and a little.
func (d *dice) linePause(ttl, left time.Duration, ahead int) time.Duration {
	pause := ttl/2 + d.upTo(ttl/20)
	if left >= 0 {
		yield := min(time.Duration(ahead)*yieldToEach, longestYieldInLine)
		pause = min(pause, left+time.Millisecond+yield)
	}
	return pause
}

// leaveNothing is what a release leaves that gives up a place in line.
func leaveNothing() After { return After{} }
