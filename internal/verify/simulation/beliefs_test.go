package simulation_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A claim is one that a store has granted.
type claim struct {
	driver.Claim
	asked      time.Time // when the request that was granted was sent, or that which it repeats
	proven     instant   // when the last request that was granted, or renewed it, was sent
	releases   int       // its releases that have no answer yet
	unanswered bool      // a release of it had no answer
	keep       keep
}

// deadline is until when the process may believe at the latest, by the claim's TTL alone.
func (c *claim) deadline() time.Time { return c.proven.get().Add(c.TTL) }

// A belief is the time for which a worker believes that it holds a key: from when it received the
// lease until its context ends. If a lease is handed off inside a process, several beliefs have
// one claim, one after the other, each with a fence of its own.
type belief struct {
	*claim
	Fence     uint64
	worker    string
	ctx       context.Context // the run's
	lease     *guard.Lease
	begun     time.Time
	live      bool // the end of ctx has not been noted
	overtaken bool // while it was live, another one on the key had a higher fence
}

// shared reports whether others may hold the key meanwhile.
func (c *claim) shared() bool { return c.MaxHolders > 1 }

// fences are those that a claim may use: the one that it was granted, and those reserved above it.
type fences struct {
	id          string
	first, last uint64
	answered    time.Time
	shared      bool // the claim shares the key
}

// beliefs keeps claims and beliefs, and checks I1, I2, I3, and that done markers and minimum holds
// are kept.
type beliefs struct {
	world *world

	mu     sync.Mutex
	fences map[string][]fences // by key
	claims map[string]*claim
	asked  map[string]time.Time // by claim: its first request
	owners map[string]*claim    // the claims that were granted last, by owner
	of     map[string][]*belief // by key, in the order in which they began
	kept   map[string][]*claim  // by key, those that have left something
	seats  map[string]*belief   // by key and seat, the last one
}

// A keep is what a claim has left of its key, a done marker or a minimum hold: from when its
// release was sent, and answered.
type keep struct{ sent, answered, until time.Time }

// granted notes that the store has granted c to a request that was sent at an instant.
func (b *beliefs) granted(c driver.Claim, sent time.Time, grant driver.Answer) *claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	proven := sent
	if first, ok := b.asked[c.ID]; ok && grant.Held && c.MaxHolders > 1 {
		sent = first // and others were granted since
	}
	b.compare(c, sent, grant)
	kept, most := 0, max(c.MaxHolders, 1)
	for _, one := range b.kept[c.Key] {
		left := one.keep
		if sent.After(left.answered) && time.Now().Before(left.until) && !b.world.disturbedSince(left.sent) {
			kept, most = kept+1, min(most, max(one.MaxHolders, 1))
		}
	}
	if kept >= most {
		b.world.violate("keep", "%s was granted while %d markers or minimum holds stood", c.Key, kept)
	}
	c.Fence = grant.Fence
	known := &claim{Claim: c, asked: sent}
	known.proven.set(proven)
	b.claims[c.ID], b.owners[c.Owner] = known, known
	return known
}

// asks notes that a request for the claim is sent.
func (b *beliefs) asks(c driver.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.asked[c.ID]; !ok {
		b.asked[c.ID] = time.Now()
	}
}

// compare checks that no other claim may use one of the fences that c was granted, and that c's
// are larger than those of which its process could know when it asked. It does not matter
// whether, or when, they are used: a lease may be handed off long after the store has forgotten
// it. b.mu must be held.
func (b *beliefs) compare(c driver.Claim, sent time.Time, grant driver.Answer) {
	if grant.Held && b.knows(c.Key, c.ID, grant.Fence) {
		return // the claim is repeated
	}
	if grant.Held { // a request that had no answer was granted, after an earlier grant had ended
		sent = b.asked[c.ID]
	}
	mine := fences{id: c.ID, first: grant.Fence, last: grant.Fence + uint64(grant.Reserved), answered: time.Now(), shared: c.MaxHolders > 1}
	for _, other := range b.fences[c.Key] {
		switch {
		case other.id == mine.id && other.first == mine.first && !b.hasBegun(c):
			// A majority granted the claim when its TTL had passed, and now grants it again. A node
			// still had its fence, which is the highest if nobody was granted the key meanwhile.
		case b.mayShareFences(mine, other) && !other.answered.Before(sent):
		case other.first <= mine.last && mine.first <= other.last:
			b.world.violate("I2", "%.6s and %.6s may both use fences on %s: %d to %d, and %d to %d",
				other.id, mine.id, c.Key, other.first, other.last, mine.first, mine.last)
		case other.answered.Before(sent) && mine.first < other.first:
			b.world.violate("I2", "%.6s was granted fence %d on %s after %.6s was granted %d",
				mine.id, mine.first, c.Key, other.id, other.first)
		}
	}
	b.fences[c.Key] = append(b.fences[c.Key], mine)
}

// knows reports whether the store has granted the fence to the claim, or raised it to that. b.mu
// must be held.
func (b *beliefs) knows(key, id string, fence uint64) bool {
	return slices.ContainsFunc(b.fences[key], func(f fences) bool {
		return f.id == id && f.first <= fence && fence <= f.last
	})
}

// hasBegun reports whether a belief in the claim has begun. b.mu must be held.
func (b *beliefs) hasBegun(c driver.Claim) bool {
	return slices.ContainsFunc(b.of[c.Key], func(of *belief) bool { return of.ID == c.ID })
}

// renewed notes that the store has renewed the claim on a request that was sent at an instant.
func (b *beliefs) renewed(c driver.Claim, sent time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	known := b.claims[c.ID]
	known.proven.set(later(sent, known.proven.get()))
	b.raised(c)
}

// raised notes that a renewal has raised the fence of a claim, to that of another key. b.mu must be
// held.
func (b *beliefs) raised(c driver.Claim) {
	for _, known := range b.fences[c.Key] {
		switch {
		case known.first > c.Fence || c.Fence > known.last:
		case known.id == c.ID:
			return
		case b.mayShareFences(known, fences{shared: c.MaxHolders > 1}):
		default:
			b.world.violate("I2", "%.6s uses fence %d on %s, of those that %.6s may use", c.ID, c.Fence, c.Key, known.id)
		}
	}
	b.fences[c.Key] = append(b.fences[c.Key], fences{id: c.ID, first: c.Fence, last: c.Fence, answered: time.Now(), shared: c.MaxHolders > 1})
}

// mayShareFences reports whether two claims that hold a key together may use the same fence: the
// nodes of a quorum have granted them in different orders.
func (b *beliefs) mayShareFences(one, other fences) bool {
	return b.world.isQuorum() && one.shared && other.shared
}

// releasing notes that the Guard releases a claim, also if the process is stopped before it sends
// the release, and the Guard does not wait for so long.
func (b *beliefs) releasing(id string) { b.countRelease(id, 1) }

// released notes the answer to a release, or that it has none.
func (b *beliefs) released(id string) { b.countRelease(id, -1) }

func (b *beliefs) countRelease(id string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.claims[id]; c != nil {
		c.releases = max(c.releases+n, 0) // the grant may have come after the release was sent
	}
}

// unanswered notes that the store has not answered to a release. It need not know of the claim.
func (b *beliefs) unanswered(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.claims[id]; c != nil {
		c.unanswered = true
	}
}

// isUnanswered reports whether a release of b's claim had no answer.
func (b *beliefs) isUnanswered(of *belief) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return of.unanswered || of.releases > 0
}

// keep notes the store's answer to a release that was to leave something. If an earlier request of
// that release had no answer, what the earlier request left remains.
func (b *beliefs) keep(id string, sent time.Time, d time.Duration, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.claims[id]
	if c == nil {
		return // the caller did not receive the grant
	}
	if until := sent.Add(d); c.keep.sent.IsZero() || until.Before(c.keep.until) {
		c.keep = keep{sent: sent, until: until}
	}
	if err == nil {
		c.keep.answered = time.Now()
		if !slices.Contains(b.kept[c.Key], c) {
			b.kept[c.Key] = append(b.kept[c.Key], c)
		}
	}
}

// begin begins the belief in the lease, until ctx, which is the run's, ends.
func (b *beliefs) begin(ctx context.Context, worker string, lease *guard.Lease) *belief {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.world
	c := b.owners[lease.Owner()]
	mine := &belief{
		claim: c, Fence: lease.Fence(), worker: worker, ctx: ctx, lease: lease, begun: time.Now(), live: true,
	}
	if mine.Fence != c.Fence {
		w.tally.handed.Add(1)
	}
	b.know(mine)
	w.trace.add("%s believes in %s %.6s, fence %d", worker, c.Key, c.ID, mine.Fence)
	var with []*belief // the others that share the key
	for _, other := range b.of[c.Key] {
		switch live := other.live && other.ctx.Err() == nil; {
		case live && c.shared() && other.shared():
			with = append(with, other)
		case live:
			b.overlap(other, mine)
		}
		switch {
		case other.Fence == mine.Fence && b.mayShareFences(fences{shared: other.shared()}, fences{shared: c.shared()}):
		case other.Fence == mine.Fence:
			w.violate("I2", "%s and %s both have fence %d on %s", other.worker, worker, mine.Fence, c.Key)
		case other.Fence > mine.Fence && (other.begun.Before(c.asked) || other.claim == c && !c.shared()):
			w.violate("I2", "%s has fence %d on %s after %s had %d", worker, mine.Fence, c.Key, other.worker, other.Fence)
		case other.Fence > mine.Fence && !c.shared() && !w.disturbedSince(c.asked):
			w.violate("I2", "%s has %s alone with fence %d, and %s has had %d", worker, c.Key, mine.Fence, other.worker, other.Fence)
		}
	}
	b.count(mine, with)
	b.sit(mine)
	b.of[c.Key] = append(b.of[c.Key], mine)
	context.AfterFunc(ctx, func() { b.end(mine, context.Cause(ctx)) })
	return mine
}

// sees notes that the fence of the lease may have been raised.
func (b *beliefs) sees(mine *belief, lease *guard.Lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if fence := lease.Fence(); fence < mine.Fence {
		b.world.violate("I2", "%s has fence %d on %s, and has had %d", mine.worker, fence, mine.Key, mine.Fence)
	} else {
		mine.Fence = fence
	}
	b.know(mine)
}

// know checks that the store knows the fence of the belief. b.mu must be held.
func (b *beliefs) know(mine *belief) {
	if !b.knows(mine.Key, mine.ID, mine.Fence) {
		b.world.violate("I2", "%s sees fence %d on %s, which the store does not know", mine.worker, mine.Fence, mine.Key)
	}
}

// overlap takes note that two believe in one key: that with the lower fence has lost the lease and
// does not know it yet, and a server must have lost it since it was last granted or renewed.
func (b *beliefs) overlap(one, other *belief) {
	if one.Fence > other.Fence {
		one, other = other, one
	}
	one.overtaken = true
	w := b.world
	w.tally.overlaps.Add(1)
	w.trace.add("%s believes in %s, which %s has", one.worker, one.Key, other.worker)
	switch {
	case w.forgottenSince(one.proven.get()):
	case w.sleptSince(one.proven.get()) == 0:
		w.violate("I1", "%s and %s both believe in %s, and no server has lost anything", one.worker, other.worker, one.Key)
	case one.lease.Valid(): // its context ends when the Guard looks at the clock the next time
		w.violate("I1", "the lease of %s on %s, which %s has, is valid after its host was suspended", one.worker, one.Key, other.worker)
	}
}

func (b *beliefs) end(mine *belief, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mine.live = false
	b.world.trace.add("%s no longer believes in %s %.6s: %v", mine.worker, mine.Key, mine.ID, outcome(nil, cause))
	if late := time.Since(mine.deadline()); late > 0 {
		b.world.violate("I3", "%s believed in %s for %v too long", mine.worker, mine.Key, late)
	}
}

// reported checks that an overtaken lease was reported as lost: err is the result of its run. The
// Guard cannot know of the loss if the release had no answer, or if it has handed the lease off
// without a request to the store.
func (b *beliefs) reported(mine *belief, handedOff bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if errors.Is(err, guard.ErrLost) {
		b.world.tally.lost.Add(1)
	} else if mine.overtaken && !mine.unanswered && mine.releases == 0 && !handedOff {
		b.world.violate("I1", "%s was overtaken on %s and not notified: %v", mine.worker, mine.Key, err)
	}
}

// over checks that nobody believes in anything any more.
func (b *beliefs) over() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, all := range b.of {
		for _, one := range all {
			if one.live {
				b.world.violate("I3", "%s has not stopped believing in %s", one.worker, one.Key)
			}
		}
	}
}

// An instant can be set and read at once.
type instant struct{ nanos atomic.Int64 }

func (i *instant) set(t time.Time) { i.nanos.Store(t.UnixNano()) }
func (i *instant) get() time.Time  { return time.Unix(0, i.nanos.Load()) }
