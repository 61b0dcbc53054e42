package redisstore

import (
	cryptorand "crypto/rand"
	"encoding/binary"
	"math"
	"strconv"
	"sync"
	"time"
)

// This file is about a key for which many processes wait. If each release had all of them ask, a
// run would cost as many requests as there are processes. So a release tells how many have received
// it (publish.lua), and each of them draws a rank by lot. Those of the least ranks ask at once. The
// others ask later, in case these do not come: the pause doubles with each rank, up to 64 ms, and
// grows by 10 ms with each further rank. The next release is drawn for again. A waiter that has
// missed many releases draws better ranks.
//
// So a release has some four requests at once, ten in 64 ms, and then a hundred per second. No
// waiter matters: one that was killed, or has left, is a rank that does not ask. The waiter's own
// polling bounds the pauses.

const (
	// crowd is how many waiters ask at once after a release, on average. If fewer wait, all do.
	crowd = 4
	// crowdStep is the pause of the rank that follows these.
	crowdStep = time.Millisecond
	// crowdEach is how much later than the rank before it a late rank asks.
	crowdEach = 10 * time.Millisecond
	// crowdAnswer is how long a waiter expects the number of waiters after a release. It comes with
	// the same packet, unless there are few waiters.
	crowdAnswer = 5 * time.Millisecond
)

// A crowdWaiter passes on the messages of a key's channel. It notifies once for each release.
type crowdWaiter struct {
	notify func(in time.Duration)

	mu      sync.Mutex
	crowded bool        // the last release told of many waiters
	missed  int         // releases with a number, since it has waited
	pending *time.Timer // notifies of a release whose number has not come; or nil
}

// receive takes in a message, see publish.lua, or "" if the subscription has begun.
func (w *crowdWaiter) receive(message string) {
	in := time.Duration(0)
	w.mu.Lock()
	waiters, _ := strconv.Atoi(message)
	switch {
	case waiters > 1:
		w.crowded = waiters > crowd
		w.missed++
		if !w.settle() {
			w.mu.Unlock()
			return // it was notified without a number
		}
		in = crowdPause(waiters, w.missed)
	case message == "0" && w.pending != nil:
		w.mu.Unlock()
		return // the same release, on the other kind of channel
	case message == "0" && w.crowded:
		w.crowded = false
		w.pending = time.AfterFunc(crowdAnswer, w.alone)
		w.mu.Unlock()
		return
	default:
		w.settle()
	}
	w.mu.Unlock()
	w.notify(in)
}

// settle ends the wait for a number, and reports whether there was one. w.mu must be held.
func (w *crowdWaiter) settle() bool {
	if w.pending == nil {
		return false
	}
	w.pending.Stop()
	w.pending = nil
	return true
}

// alone notifies of a release without a number: few wait now.
func (w *crowdWaiter) alone() {
	w.mu.Lock()
	pending := w.settle()
	w.mu.Unlock()
	if pending {
		w.notify(0)
	}
}

// granted notes that the process has got the key.
func (w *crowdWaiter) granted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.missed = 0
}

// stop reports whether many have waited.
func (w *crowdWaiter) stop() (crowded bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.settle() || w.crowded
}

// crowdPause draws the rank of one of so many waiters, and returns its pause. missed is how many
// releases it has seen without getting the key. A test that fixes crypto/rand fixes the rank.
func crowdPause(waiters, missed int) time.Duration {
	var random [8]byte
	_, _ = cryptorand.Read(random[:]) // never fails
	lot := float64(binary.LittleEndian.Uint64(random[:])) / (1 << 64)
	// A waiter whose turn it would be, if all took turns, has age 1. By equal chances alone, some
	// waiters would reach age 7.
	age := min(float64(missed)/float64(waiters), 2)
	rank := lot * float64(waiters) / (0.5 + 1.5*age*age)
	if rank < crowd {
		return 0
	}
	late := rank - crowd
	return time.Duration(min((math.Exp2(late)-1)*float64(crowdStep), late*float64(crowdEach)))
}
