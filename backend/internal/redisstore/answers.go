package redisstore

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// mostAnswers is how many bytes of answers a pipeline may have: the server may run all its
	// commands before it serves another client.
	mostAnswers = 1 << 20
	// largeAnswer is how long an answer must be to bound the pipelines that follow it, and largeFor
	// for how long it does.
	largeAnswer = 64 << 10
	largeFor    = 10 * time.Second
)

// An answerBound bounds the pipelines to a server whose answers were large: how large they are is
// known only afterwards. It is safe for concurrent use.
type answerBound struct {
	fits atomic.Int64              // large answers that a pipeline may have, or 0 if none was large
	seen atomic.Pointer[time.Time] // when; it is set before fits
}

// most returns how many commands a pipeline may have.
func (a *answerBound) most() int {
	fits := a.fits.Load()
	if fits == 0 {
		return math.MaxInt
	}
	if time.Since(*a.seen.Load()) > largeFor {
		a.fits.CompareAndSwap(fits, 0)
		return math.MaxInt
	}
	return int(fits)
}

// note notes the answers to the commands of a pipeline.
func (a *answerBound) note(commands []command) {
	largest := 0
	for i := range commands {
		largest = max(largest, answerBytes(commands[i].cmd.Val()))
	}
	if largest < largeAnswer {
		return
	}
	now := time.Now()
	a.seen.Store(&now)
	fits := int64(max(mostAnswers/largest, 1))
	if old := a.fits.Load(); old == 0 || fits < old {
		a.fits.Store(fits)
	}
}

// answerBytes returns the bytes of the texts in an answer.
func answerBytes(answer any) (n int) {
	switch a := answer.(type) {
	case string:
		return len(a)
	case []any:
		for _, part := range a {
			n += answerBytes(part)
		}
	}
	return n
}
