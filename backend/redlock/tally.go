package redlock

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A vote is a node's answer to a claim.
type vote = reply[driver.Answer]

// grants reports whether the node has granted the claim.
func grants(v vote) bool { return v.err == nil && v.value.State == driver.Granted }

// wants reports whether the node has refused the claim, and keeps others away for it.
func wants(v vote) bool { return v.err == nil && v.value.Reason == driver.HeldForClaim }

// A verdict is the result of the votes so far.
type verdict uint8

const (
	undecided verdict = iota
	granted
	refused
	failed
)

// A tally is the count of the votes so far.
type tally struct {
	verdict verdict
	fence   uint64        // if granted
	held    bool          // if granted: a majority held the key for the claim or its owner
	refusal driver.Answer // if refused
	// grace, if undecided, is how long to wait for votes that would only add information. It is 0
	// if the votes so far decide nothing.
	grace time.Duration
}

const (
	// shortGrace is the usual grace.
	shortGrace = 5 * time.Millisecond
	// longGrace is for a claim that seems to be a repeated one. It is rare, as its first answer
	// was lost, and votes that are missing would tell the fence that it has.
	longGrace = 100 * time.Millisecond
)

// count counts the votes. If late, it waits for no further votes.
func (l *Locker) count(votes []vote, late bool) tally {
	var grantCount, busy, failures int
	var highest uint64
	var held []uint64 // fences under which nodes held the key before
	for _, v := range votes {
		switch {
		case v.err != nil:
			failures++
		case grants(v):
			grantCount++
			highest = max(highest, v.value.Fence)
			if v.value.Held {
				held = append(held, v.value.Fence)
			}
		case v.value.State == driver.Busy:
			busy++
		}
	}
	holds := len(held)
	spare := len(l.nodes) - l.quorum // nodes that are not needed
	late = late || len(votes) == len(l.nodes)
	switch {
	case grantCount+busy+failures < len(votes) && holds < l.quorum:
		// Some nodes have a done marker. The claim may be a repeated one, and those nodes may have
		// received the marker of an earlier run so late that it is gone on the others.
		if !late && holds+len(l.nodes)-len(votes) >= l.quorum {
			if holds > 0 {
				return tally{grace: longGrace}
			}
			return tally{grace: shortGrace}
		}
		return tally{verdict: refused, refusal: lastDone(votes)}
	case holds >= l.quorum:
		// A majority has the fence of a claim that was granted before. Other nodes have another
		// fence, because they granted the claim late, or grant it now.
		fence, same := mostCommon(held, func(a, b uint64) bool { return a == b })
		if same < l.quorum {
			if fence = slices.Max(held); !late {
				return tally{grace: longGrace}
			}
		}
		return tally{verdict: granted, fence: fence, held: true}
	case grantCount >= l.quorum && (holds == 0 || late):
		return tally{verdict: granted, fence: highest}
	case grantCount >= l.quorum:
		return tally{grace: longGrace} // the claim may be a repeated one
	case failures > spare:
		return tally{verdict: failed}
	case holds > 0 && busy+failures <= spare && holds+len(l.nodes)-len(votes) >= l.quorum:
		// The claim is a repeated one, and nodes that have not answered may hold the key for it.
		// If it were refused, it would be released.
		return tally{}
	case busy+failures > spare, busy > 0 && len(votes) >= l.quorum:
		// Slow nodes could still make the latter a grant, but no caller waits for them.
		return l.refuse(votes, grantCount, busy, late)
	}
	return tally{}
}

// mostCommon returns the value that is the same as most of them, and how many it is the same as.
func mostCommon[T any](of []T, same func(a, b T) bool) (top T, most int) {
	for _, v := range of {
		n := 0
		for _, other := range of {
			if same(v, other) {
				n++
			}
		}
		if n > most {
			top, most = v, n
		}
	}
	return top, most
}

// maxSkew is how much the nodes may differ in the time that is left of a lease. If they differ
// more, some nodes have received the minimum hold that the lease has become, and others will.
const maxSkew = time.Second

// refuse returns the tally of votes with which the claim can no longer be granted.
func (l *Locker) refuse(votes []vote, grantCount, busy int, late bool) tally {
	var of []driver.Answer
	wanted := 0 // nodes that keep others away for this claim
	for _, v := range votes {
		if v.err == nil && v.value.State == driver.Busy {
			of = append(of, v.value)
		}
		if wants(v) {
			wanted++
		}
	}
	slices.SortStableFunc(of, func(a, b driver.Answer) int { return cmp.Compare(leftOrForever(a.Left), leftOrForever(b.Left)) })
	top, most := mostCommon(of, sameHolder)
	if !late && (most < l.quorum || leftOrForever(of[len(of)-1].Left)-leftOrForever(of[0].Left) > maxSkew || wanted > 0 && wanted < l.quorum) {
		// No claim seems to hold the key, or its release is under way: ask again. Or some nodes
		// keep others away for this claim, and a majority may.
		return tally{grace: shortGrace}
	}
	// So many nodes have to become free until there is a majority, if those that have not answered
	// do not.
	top.Left = of[max(min(l.quorum-grantCount, busy), 1)-1].Left
	switch {
	case wanted >= l.quorum:
		top.Reason = driver.HeldForClaim
	case most < l.quorum && (grantCount > 0 || most < busy):
		top.Reason = driver.Undecided
	case top.Reason == driver.HeldForClaim:
		top.Reason = driver.HeldShared
	}
	return tally{verdict: refused, refusal: top}
}

// leftOrForever returns the time that is left, and the longest time if the lease never ends.
func leftOrForever(left time.Duration) time.Duration {
	if left < 0 {
		return math.MaxInt64
	}
	return left
}

// sameHolder reports whether the nodes that gave these answers may have the same holder. Claims
// that share a key do so on all nodes, but not in the same order, so that each node names another
// one.
func sameHolder(a, b driver.Answer) bool {
	return a.Holder == b.Holder || a.Reason.IsShared() && b.Reason.IsShared()
}

// lastDone returns the marker that lasts longest. The work is done, even if few nodes know it.
func lastDone(votes []vote) (done driver.Answer) {
	for _, v := range votes {
		if v.err == nil && v.value.State == driver.Done && (done.State != driver.Done || leftOrForever(v.value.Left) > leftOrForever(done.Left)) {
			done = v.value
		}
	}
	return done
}

// heldBy returns what the answers to a release or a renewal say of the claim: granted if a majority
// held it, refused if it is certain that none did, and failed if too few answers can come for
// either.
func (l *Locker) heldBy(got []vote) verdict {
	var held, gone int
	for _, v := range got {
		switch {
		case v.err != nil:
		case v.value.Held:
			held++
		default:
			gone++
		}
	}
	pending, spare := len(l.nodes)-len(got), len(l.nodes)-l.quorum
	switch {
	case held >= l.quorum:
		return granted
	case gone > spare:
		return refused
	case held+pending >= l.quorum || gone+pending > spare:
		return undecided
	}
	return failed
}

// held returns whether a majority held the claim, or an error if that is not known.
func (l *Locker) held(ctx context.Context, op driver.Op, key string, got []vote) (bool, error) {
	v := l.heldBy(got)
	if v == granted || v == refused {
		return v == granted, nil
	}
	return false, noQuorum(ctx, op, key, l.nodes, got)
}
