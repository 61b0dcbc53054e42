package redisstore

import (
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Layout is how a backend keeps its keys in Redis: the scripts, and what they are given. Scripts
// have the arguments below in this order, as many as their Operation says. Those of the queue
// follow, see queue.lua.
//
//	            each call          all calls             further
//	acquire     ID, special, owner TTL, label, Publish   MaxHolders, ms to be wanted, seat
//	renew       ID, fence          TTL, reserve          seat
//	release     ID                 leave, label, Publish (and the record)
type Layout struct {
	Program *Program
	Names   func(op driver.Op, key string) Names
	// Further returns the keys that follow these in a script of Program.Shared.
	Further    func(op driver.Op, c driver.Claim, fence string) []string
	Inspection *Inspection
	Publish    string // how to publish releases, see publish.lua
	// Channel returns the channel on which the releases of a key are published, and Via is how.
	Channel func(key string) string
	Via     pubsub.Via
	Acks    Acks // of grants and of done markers
	// Check returns an error for a claim that must not be made. It may be nil.
	Check func(driver.Claim) error
}

// call returns a call for the claim, without arguments.
func (l *Locker) call(op driver.Op, c driver.Claim) Call {
	shared := c.MaxHolders > 1 || c.Repeated && op != driver.OpRenew
	script := l.layout.Program.script(op, shared, c.Queue.UsesQueue())
	call := Call{Op: op, Key: c.Key, Script: script, Names: l.layout.Names(op, c.Key)}
	if script.of.FurtherKeys > 0 {
		call.FurtherKeys = l.layout.Further(op, c, call.Slot)
	}
	return call
}

// acquireCall returns the call that asks for the claim's key.
func (l *Locker) acquireCall(c driver.Claim) Call {
	ttl, label, special := l.store.terms(c)
	call := l.call(driver.OpAcquire, c)
	call.acquires, call.locker, call.Repeats, call.Acks = c, l, true, l.layout.Acks
	call.Args, call.Shared = [...]string{c.ID, special, c.Owner}, [...]string{ttl, label, l.layout.Publish}
	if call.Script.of.FurtherArgs > 0 {
		wantedFor := int64(0)
		if c.Queue.Waits() {
			wantedFor = Milliseconds(driver.WantedFor(c.TTL))
		}
		call.FurtherArgs = []any{max(c.MaxHolders, 1), wantedFor}
	}
	if c.Queue.UsesQueue() {
		l.queue.acquire(c, &call)
	}
	return call
}

// renewCall returns the call that renews the claim.
func (l *Locker) renewCall(c driver.Claim) Call {
	call := l.call(driver.OpRenew, c)
	call.Args[0], call.Args[1] = c.ID, strconv.FormatUint(c.Fence, 10)
	call.Shared[0], call.Shared[1] = l.store.ttlText(c.TTL), strconv.Itoa(c.Fences.Reserve)
	call.Repeats = true
	return call
}

// releaseCall returns the call that releases the claim's key.
func (l *Locker) releaseCall(c driver.Claim, after driver.After) Call {
	if c.MaxHolders > 1 {
		after = driver.After{Keep: after.Keep} // it leaves no marker
	}
	leave, label, record := residue(c, after)
	call := l.call(driver.OpRelease, c)
	call.Args[0], call.Shared, call.Record = c.ID, [...]string{leave, label, l.layout.Publish}, record
	call.Repeats = after.Keep > 0
	if after.Done && after.Keep > 0 {
		call.Acks = l.layout.Acks
	}
	if c.Queue.UsesQueue() {
		l.queue.release(&call, leave)
	}
	return call
}

// terms returns the arguments in which acquire finds what a claim asks for besides its key: the TTL
// in ms, the label, and what few claims ask for, see grant.lua.
func (s *Store) terms(c driver.Claim) (ttl, label, special string) {
	switch {
	case c.Fences.Hint != 0 && c.Fences.Reserve <= 0 && c.Fence == 0 && s.minUptime == 0:
		// as most claims of a quorum
		special = strconv.FormatUint(c.Fences.Hint, 10)
	case c.Fences.Reserve > 0 || c.Fence != 0 || c.Fences.Hint != 0 || s.minUptime != 0:
		var room [4 * 21]byte // four numbers and spaces
		text := strconv.AppendInt(room[:0], int64(max(c.Fences.Reserve, 0)), 10)
		text = strconv.AppendUint(append(text, ' '), c.Fence, 10)
		text = strconv.AppendUint(append(text, ' '), c.Fences.Hint, 10)
		special = string(strconv.AppendInt(append(text, ' '), s.uptimeSeconds(), 10))
	}
	return s.ttlText(c.TTL), c.Label, special
}

// ttlText returns the TTL in ms. It is mostly that of the call before.
func (s *Store) ttlText(ttl time.Duration) string {
	last := s.lastTTL.Load()
	if last == nil || last.ttl != ttl {
		last = &ttlText{ttl, milliseconds(ttl)}
		s.lastTTL.Store(last)
	}
	return last.text
}
