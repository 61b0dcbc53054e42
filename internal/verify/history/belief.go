package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A Believer notes for how long a client believes in a lease.
type Believer struct {
	log   *Log
	lease *guard.Lease
	ttl   time.Duration
	once  sync.Once
	event Event
	ended chan struct{}
}

// Believe notes that a client, which was just given the lease, believes in it from now on: until
// its context ends, at the latest. since is when it asked for the lease. If an owner is named
// (guard.WithOwner), it must not hold keys by several claims at a time.
func (l *Log) Believe(lease *guard.Lease, key string, ttl time.Duration, since int64) *Believer {
	b := &Believer{log: l, lease: lease, ttl: ttl, ended: make(chan struct{})}
	b.event = l.Begin(Event{Kind: Belief, Key: key, Claim: l.claimOf(lease.Owner()), Fence: lease.Fence(), TTL: ttl, Since: since})
	context.AfterFunc(lease.Context(), func() { b.end(context.Cause(lease.Context())) })
	return b
}

// Holder names the belief, for Client.Read and Client.Write.
func (b *Believer) Holder() string { return fmt.Sprint(b.event.Process, "#", b.event.Number) }

// End notes that the client is about to release the lease. If the lease is over, End notes
// nothing: its context has ended or is about to, and that is noted.
func (b *Believer) End() {
	now := Now()
	if b.lease.Valid() {
		b.endAt(now, guard.ErrReleased)
	}
}

// Wait returns when the end of the belief was noted.
func (b *Believer) Wait() { <-b.ended }

func (b *Believer) end(cause error) { b.endAt(Now(), cause) }

func (b *Believer) endAt(at int64, cause error) {
	b.once.Do(func() {
		e := b.event
		e.Return, e.Deadline = at, b.log.deadline(e.Claim, b.ttl)
		e.Reason = "cancelled"
		var lost *guard.LostError
		switch {
		case errors.As(cause, &lost):
			e.Reason = string(lost.Reason)
			if lost.Reason == guard.LossExpired {
				e.Late = lost.Late
			}
		case errors.Is(cause, guard.ErrReleased):
			e.Reason = "released"
		}
		b.log.End(e)
		close(b.ended)
	})
}

// until returns when the belief e ended: killed holds when processes were.
func (e Event) until(killed map[string]int64) int64 {
	end := never
	if e.over() {
		end = e.Return - int64(e.Late)
	}
	if at, ok := killed[e.Process]; ok {
		end = min(end, at)
	}
	return end
}

// An Overlap is a time for which two clients believed in one key.
type Overlap struct {
	Key      string
	One, Two Event
	For      time.Duration
}

func (o Overlap) String() string {
	return fmt.Sprintf("%s (fence %d) and %s (fence %d) both believed in %s for %v", o.One.Process, o.One.Fence, o.Two.Process, o.Two.Fence, o.Key, o.For)
}

// Overlaps returns each belief that began while one in the same key was live, with that which
// lasted longest. The last end of a belief that did not live to see it is that of its process.
func Overlaps(events []Event) (found []Overlap) {
	killed := Kills(events)
	last := map[string]Event{} // by key: the belief that lasts longest so far
	for _, e := range Beliefs(events) {
		was, ok := last[e.Key]
		if ok && e.Call < was.until(killed) && e.until(killed) > e.Call {
			both := min(was.until(killed), e.until(killed)) - e.Call
			found = append(found, Overlap{Key: e.Key, One: was, Two: e, For: time.Duration(both)})
		}
		if !ok || e.until(killed) > was.until(killed) {
			last[e.Key] = e
		}
	}
	return found
}

// Beliefs returns the beliefs in the order in which they began. What a stall after the deadline
// has added to the time until the end was noted is in Late.
func Beliefs(events []Event) (all []Event) {
	stalls := Stalls(events)
	for _, e := range events {
		if e.Kind == Belief {
			if e.Reason == "expired" && e.Deadline > 0 {
				e.Late = max(e.Late, stalls.Within(e.Deadline, e.Return, e.Process))
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.Call, b.Call) })
	return all
}

// Kills returns when processes were killed.
func Kills(events []Event) map[string]int64 {
	killed := map[string]int64{}
	for _, e := range events {
		if e.Kind == Killed {
			killed[e.Process] = e.Call
		}
	}
	return killed
}
