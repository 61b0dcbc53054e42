package guard

import (
	"bytes"
	"time"
)

// A place is where calls stand in line: what the store knows the key as and, where the caller has named one, the owner. Those of
// an owner have a line of their own, as a store that keeps owners may grant them a key for which others have to wait, and the holder
// may be waiting for them to get it. It is the same line for all where the store says that it keeps none.
type place struct{ key, owner string }

// sharing returns the owner with whom a call may share a key, if any.
func (g *Guard) sharing(set *settings) string {
	if g.ownerless {
		return ""
	}
	return set.owner
}

// A line is the calls of one Guard that wait for a key, in the order in which they came. Only the first asks the store, and not even
// that while a call of this Guard holds the key: then the end of that is the news to wait for. Guard.mu guards it.
//
// A line is there while somebody stands in it or holds the key by it. What one call hears of the key is for all: when to ask
// again, what to tell those whose time is up, and the one subscription to the store's pushes.
type line struct {
	place       place
	first, last *attempt
	count       uint64   // of those who have come: each has a number
	asking      *attempt // the first, while its request is under way
	asked       uint64   // the number of the last who stood in line when it was sent
	askedAt     time.Duration
	askAt       time.Duration // the first does not ask before
	rung        bool          // the key may have become free since that request was sent
	told        bool          // a push has come since the last answer
	holder      *hold         // who has the key, if it is a hold of this Guard's, and is valid
	overdue     int           // how many stay beyond their time as nothing was heard yet

	heard    bool
	heardAt  time.Duration
	answer   Grant // busy
	failure  error // in place of an answer
	failures int   // in a row
	polls    int   // answers of busy since a call of this Guard had the key
	lost     int   // turns of other processes since then
	turns    int   // how many of those to let pass; 0 while no call of this Guard has had the key
	yields   bool  // the first waits for others to ask before it

	reserve int // how many fences to set aside, see handover.go
	push    *push
}

// stand puts a at the end of its line. g.mu must be held.
func (g *Guard) stand(a *attempt) {
	at := place{a.claim.Key, g.sharing(a.set)}
	l := g.lines[at]
	if l == nil {
		l = g.spareLines.Get().(*line)
		l.place, l.reserve = at, firstReserve
		g.lines[at] = l
	}
	l.count++
	a.line, a.number, a.before = l, l.count, l.last
	a.crowded = l.first != nil || l.holder != nil
	if l.last != nil {
		l.last.behind = a
	} else {
		l.first = a
	}
	l.last = a
}

// remove takes a out of the line, wherever it stands. Guard.mu must be held.
func (l *line) remove(a *attempt) {
	if a.before != nil {
		a.before.behind = a.behind
	} else {
		l.first = a.behind
	}
	if a.behind != nil {
		a.behind.before = a.before
	} else {
		l.last = a.before
	}
	if a.overdue {
		l.overdue--
	}
	if l.asking == a {
		l.asking = nil
	}
	a.line, a.before, a.behind, a.overdue = nil, nil, nil, false
}

// drop forgets the line if it is over. g.mu must be held, and unlockLines has to follow.
func (g *Guard) drop(l *line) {
	if l.first != nil || l.holder != nil || g.lines[l.place] != l {
		return
	}
	delete(g.lines, l.place)
	if l.push != nil {
		l.push.over = true
		if l.push.end != nil {
			g.unheard = append(g.unheard, l.push.end)
		}
		return // a push that comes late may still look at the line
	}
	*l = line{}
	g.spareLines.Put(l)
}

// unlockLines unlocks g.mu, and ends the subscriptions of lines that are over: a store may hold a lock of its own when it calls us.
func (g *Guard) unlockLines() {
	ends := g.unheard
	g.unheard = nil
	g.mu.Unlock()
	for _, end := range ends {
		end()
	}
}

// wake has the first look at what is to be done, if there is one. Guard.mu must be held.
func (l *line) wake() {
	if l.first != nil {
		l.first.signal()
	}
}

// ring has the first ask, as the key may be free: at once if it is this line's turn. g.mu must be held.
func (l *line) ring(g *Guard) {
	if l.asking != nil {
		l.rung = true
		return
	}
	l.told = true
	now := g.now()
	askAt := now
	if l.yields = l.lost < l.turns; l.yields {
		askAt += g.dice.yieldPause(time.Duration(g.trip), l.lost)
	}
	l.askAt = min(l.askAt, askAt)
	l.wake()
}

// learn notes how it came that a call of this Guard has the key: if others have left it to us, there are fewer of them than we thought; if
// we are always the first as soon as it is our turn, there may be more, who never are. Guard.mu must be held.
func (l *line) learn() {
	switch {
	case l.turns == 0:
		l.turns = fewestTurns
	case l.yields:
		l.turns = max(l.turns-1, fewestTurns)
	default:
		l.turns = min(l.turns+1, mostTurns)
	}
	l.lost, l.yields = 0, false
}

// looks reports whether the first, who is about to ask, does so by the clock alone: the key was busy, and nobody has told that it may be free. Guard.mu must
// be held.
func (l *line) looks() bool {
	return l.push != nil && !l.told && l.polls > 0 && l.failure == nil && !l.answer.Contested
}

// known reports whether there is anything to tell those whose time is up.
func (l *line) known() bool { return l.heard || l.holder != nil }

// wakeOverdue wakes those who stay only until something is known. Guard.mu must be held.
func (l *line) wakeOverdue() {
	for a := l.first; a != nil && l.overdue > 0; a = a.behind {
		if a.overdue {
			a.overdue = false
			l.overdue--
			a.signal()
		}
	}
}

// busy returns what the store would say of the key, as far as it is known. Guard.mu must be held.
func (l *line) busy(now time.Duration) Grant {
	if h := l.holder; h != nil {
		return Grant{Left: max(0, h.validUntil()+h.margin-now), Label: h.claim.Label, Holder: h.claim.ID}
	}
	g := l.answer
	if g.Left > 0 {
		g.Left = max(0, g.Left-(now-l.heardAt))
	}
	return g
}

// tell notes what the store has said to the first, or why it has not, and when to ask again. Guard.mu must be held.
func (l *line) tell(a *attempt, failure error, pause time.Duration) {
	now := a.guard.now()
	l.asking, l.told = nil, false
	if failure == nil {
		a.guard.trip.note(a.took)
	}
	l.heard, l.heardAt, l.failure = true, now, failure
	l.askAt = now + pause
	switch {
	case failure != nil:
		l.failures++
		if !permanent(failure) { // whoever asks next
			l.askAt = max(l.askAt, now+a.guard.dice.retryPause(l.failures))
		}
	case a.last.State == Done:
		l.tellDone(a)
		l.heard, l.failures, l.askAt = false, 0, now // those who came later
	default:
		l.tellBusy(a)
	}
	if l.rung {
		l.rung = false
		l.ring(a.guard)
	}
	l.wakeOverdue()
}

// tellBusy notes what the store has said to the first. Guard.mu must be held.
func (l *line) tellBusy(a *attempt) {
	before := l.answer.Holder
	l.answer, l.failures = a.last, 0
	l.polls++
	if a.last.Holder == "" || a.last.Holder != before {
		l.lost++
	}
}

// tellDone lets all go who stood in line already when the request was sent that was answered with done: each would be told the
// same. Those who came later might not. Guard.mu must be held.
func (l *line) tellDone(a *attempt) {
	if a.behind == nil {
		return
	}
	told := a.last
	told.Record = bytes.Clone(told.Record) // as a's goes to its caller, who may change it
	for b := a.behind; b != nil && b.number <= l.asked; b = a.behind {
		l.remove(b)
		b.told = &told
		b.signal()
	}
}

// seat notes that a holds the key by h, and no longer stands in line. g.mu must be held.
func (g *Guard) seat(a *attempt, h *hold) {
	l := a.line
	if l != nil {
		l.remove(a)
		g.trip.note(a.took)
	} else if len(g.lines) > 0 {
		l = g.lines[place{a.claim.Key, g.sharing(a.set)}]
	}
	if l == nil {
		return
	}
	l.learn()
	if g.sharing(a.set) != "" { // the next may be granted the key as well
		l.askAt = g.now()
		l.wake()
		g.drop(l)
		return
	}
	l.holder = h
	l.polls, l.failures, l.failure, l.rung = 0, 0, nil, false
	l.wakeOverdue()
}

// unseat notes that h is not believed in any more: from askAt on the first has to look for itself. g.mu must be held.
func (g *Guard) unseat(h *hold, askAt time.Duration) {
	if len(g.lines) == 0 {
		return
	}
	l := g.lines[place{key: h.claim.Key}]
	if l == nil || l.holder != h {
		return
	}
	l.answer, l.heard, l.heardAt = l.busy(g.now()), true, g.now()
	l.holder, l.askAt = nil, askAt
	if askAt != never {
		l.wake()
	}
}
