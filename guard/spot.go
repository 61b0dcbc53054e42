package guard

import (
	"bytes"
	"context"
	"errors"
	"time"
)

// errUnheard is for a call whose time was up before those that stood in line before it had an answer.
var errUnheard = errors.New("it has not answered those who asked before in this process")

// A spot is an attempt's place in line. Guard.mu guards it, but for news and timer.
type spot struct {
	line           *line // nil while it does not stand in one
	before, behind *attempt
	number         uint64
	crowded        bool          // somebody else of this Guard's held the key, or stood in line before
	overdue        bool          // its time is up, but nothing was heard yet
	prepared       *hold         // for the lease that it may be given
	passing        bool          // it is about to be given a lease
	given          *hold         // the lease that it was given
	told           *Grant        // what another was told: that the key is done
	inLine         bool          // it has a line, or has just been taken out of it. Its own goroutine's
	news           chan struct{} // it has to look; nil until it rests
	timer          *time.Timer
}

// signal has the attempt look. Guard.mu must be held.
func (s *spot) signal() {
	if s.news == nil {
		return // it is going to look before it rests
	}
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// A move is what an attempt that stands in line does next.
type move uint8

const (
	moveRest  move = iota // wait for news
	movePass              // wait for the lease, which is on its way
	moveAsk               // ask the store
	moveTake              // it was given the lease
	moveLeave             // its time is up, or the key is done
)

// await stands in line until it is a's turn to ask the store. It returns the hold if the lease was handed over instead, or why to
// give up. It rests in the caller's own goroutine. ctx is the caller's.
func (a *attempt) await(ctx context.Context) (*hold, error) {
	switch {
	case a.set.wait <= 0:
		return nil, nil
	case a.queued():
		a.beforeAsking()
		return nil, nil
	}
	for {
		m, until, err := a.look(ctx)
		switch m {
		case moveAsk:
			return nil, nil
		case moveTake:
			if h, err := a.receive(ctx); h != nil || err != nil {
				return h, err
			}
			continue
		case moveLeave:
			return nil, err
		case movePass:
			<-a.news
			continue
		case moveRest:
		}
		if err := a.rest(ctx, until); err != nil {
			a.leaveLine(ctx)
			return nil, err
		}
	}
}

// look says what to do now: it takes a's place in line if it has none, and leaves it if its time is up.
func (a *attempt) look(ctx context.Context) (m move, until time.Duration, err error) {
	g := a.guard
	if !a.inLine && a.prepared == nil {
		a.prepared = g.newHold(ctx, a)
	}
	g.mu.Lock()
	defer g.unlockLines()
	now := g.now()
	if !a.inLine {
		a.inLine = true
		g.stand(a)
	}
	m, until = a.decide(now)
	switch m {
	case moveAsk:
		l := a.line
		l.asking, l.asked, l.askedAt, l.rung = a, l.count, now, false
		a.looks = l.looks()
		a.waitedFor(l)
		a.setAside(l)
	case moveLeave:
		err = a.timeUp(now)
	case moveRest, movePass:
		if a.news == nil {
			a.news = make(chan struct{}, 1)
		}
	case moveTake:
	}
	return m, until, err
}

// decide returns the next move, and until when to rest. Guard.mu must be held.
func (a *attempt) decide(now time.Duration) (m move, until time.Duration) {
	switch {
	case a.passing:
		return movePass, 0
	case a.given != nil:
		return moveTake, 0
	case a.told != nil:
		return moveLeave, 0
	}
	l := a.line
	first := l.first == a && l.holder == nil
	timeUp := now >= a.deadline
	switch patient := first && a.failed > 0 && a.patient(); {
	case now >= a.giveUp:
		return moveLeave, 0
	case timeUp && l.known() && !patient:
		// The first asks once more, unless it was told only just now: a thousand whose time is up at once would all do so.
		if first && l.failure == nil && now-l.heardAt >= firstPoll {
			return moveAsk, 0
		}
		return moveLeave, 0
	case first && now >= l.askAt:
		return moveAsk, 0
	case timeUp && !patient && !a.overdue:
		a.overdue = true
		l.overdue++
	}
	until = a.deadline
	if timeUp {
		until = a.giveUp
	}
	if first {
		until = min(until, l.askAt)
	}
	return moveRest, until
}

// patient reports whether a store that does not answer is worth another try although the time to wait is up: it is asked a few times
// by a call that does not wait as well, but not by one who has heard from others that it does not answer.
func (a *attempt) patient() bool { return a.failed < acquireTries && !a.crowded }

// timeUp takes a out of the line and returns what is known of the key as an error. Guard.mu must be held.
func (a *attempt) timeUp(now time.Duration) error {
	if a.told != nil {
		a.last = *a.told
		a.last.Record = bytes.Clone(a.last.Record)
		return a.done()
	}
	l := a.line
	defer a.quit()
	switch {
	case l.holder == nil && l.failure != nil:
		return l.failure
	case !l.known():
		return &StoreError{Op: OpAcquire, Key: a.claim.Key, Kind: KindTimeout, Err: errUnheard}
	}
	a.last = l.busy(now)
	return &BusyError{Key: a.key, Left: a.last.Left, Label: a.last.Label, Waited: a.waited(now)}
}

// waitedFor notes who had the key last, as far as the line knows. Guard.mu must be held.
func (a *attempt) waitedFor(l *line) {
	if !l.heard || l.failure != nil || l.answer.Contested {
		return
	}
	a.previous, a.overAt = l.answer.Label, never
	if l.answer.Left >= 0 {
		a.overAt = l.heardAt + l.answer.Left
	}
}

// quit takes a out of the line; if it was the first, the next takes over. Guard.mu must be held.
func (a *attempt) quit() {
	l := a.line
	wasFirst := l.first == a
	l.remove(a)
	if wasFirst {
		l.wake()
	}
	a.guard.drop(l)
}

// rest waits for news until an instant, or returns why to give up.
func (a *attempt) rest(ctx context.Context, until time.Duration) error {
	a.tellWait()
	a.listen()
	var due <-chan time.Time
	if until != never {
		d := until - a.guard.now()
		if a.timer == nil {
			a.timer = time.NewTimer(d)
		} else {
			a.timer.Reset(d)
		}
		defer a.timer.Stop()
		due = a.timer.C
	}
	select {
	case <-a.news:
	case <-due:
	case <-ctx.Done():
		return contextEnded(ctx, OpAcquire, a.key)
	case <-a.guard.closing:
		return &ClosedError{Key: a.key}
	}
	return nil
}

// leaveLine is for one who gives up before its time, for a reason of its own. If it was given the lease just now, that goes on to
// the next, or back to the store.
func (a *attempt) leaveLine(ctx context.Context) {
	g := a.guard
	g.mu.Lock()
	for a.passing {
		g.mu.Unlock()
		<-a.news
		g.mu.Lock()
	}
	given := a.given
	if given == nil && a.line != nil {
		a.quit()
	}
	g.unlockLines()
	if given != nil {
		a.decline(ctx, given)
	}
}

// heard tells the line what came of a's request: failure, or a.last. a leaves the line if it gives up with err.
func (a *attempt) heard(ctx context.Context, failure, err error, pause time.Duration) {
	if !a.inLine {
		return
	}
	g := a.guard
	g.mu.Lock()
	defer g.unlockLines()
	l := a.line // where it still stands: one who asks is not given anything
	switch {
	case failure != nil && ctx.Err() != nil: // which says nothing of the store
	case failure == nil && a.last.State == Busy && pause == 0:
		l.tell(a, nil, a.busyPause())
	default:
		l.tell(a, failure, pause)
	}
	if err != nil {
		a.quit()
	}
}

// busyPause is how long to wait before asking for the busy key again. Guard.mu must be held.
func (a *attempt) busyPause() time.Duration {
	d, l := a.guard.dice, a.line
	if l.push.listening() {
		return d.listenPause(a.claim.TTL, a.last.Left)
	}
	return d.pollPause(l.polls+1, a.last.Left)
}

// tellWait tells the hooks, once, that the call waits for the key.
func (a *attempt) tellWait() {
	if a.waitFrom != never {
		return
	}
	g := a.guard
	g.mu.Lock()
	l := a.line
	waits := l != nil && (l.first != a || l.holder != nil || l.heard && l.failure == nil && !l.answer.Contested)
	if waits {
		a.last = l.busy(g.now())
		a.waitFrom = g.now()
	}
	g.mu.Unlock()
	if waits && len(a.set.hooks) > 0 {
		e := a.event(a.waitFrom, nil)
		hooks(a.set.hooks).tell(a.ctx, &e, pickWait)
	}
}

// listen begins to listen for the line, if a is the first, the key was found busy, and nobody listens yet.
func (a *attempt) listen() {
	g := a.guard
	if g.notifier == nil {
		return
	}
	g.mu.Lock()
	l := a.line
	if l == nil || l.first != a || l.holder != nil || l.polls == 0 || l.push != nil {
		g.mu.Unlock()
		return
	}
	p := &push{guard: g, line: l}
	l.push = p
	g.mu.Unlock()
	p.start(g.notifier, a.claim.Key)
}
