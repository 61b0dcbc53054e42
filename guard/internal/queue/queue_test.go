package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/clock"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

const (
	ttl  = 10 * time.Second
	ms   = time.Millisecond
	trip = ms
)

var (
	unreachable = driver.NewStoreError("test", driver.OpAcquire, "k", errors.New("unreachable"))
	forbidden   = &driver.StoreError{Op: driver.OpAcquire, Key: "k", Kind: driver.KindAuth, Err: errors.New("no")}
	terms       = queue.Terms{TTL: ttl, Renew: true}
	id          = queue.ID{Key: "k"}
)

// busy returns the answer that the key is held for the given time.
func busy(left time.Duration) queue.Answer {
	return queue.Answer{Grant: driver.Answer{State: driver.Busy, Left: left, Label: "holder", Holder: "h"}, Took: trip}
}

func done(record string) queue.Answer {
	return queue.Answer{Grant: driver.Answer{State: driver.Done, Left: time.Hour, Record: []byte(record)}}
}

// lease is a lease of this process.
type lease struct{ label string }

func (l *lease) Busy(time.Duration) driver.Answer { return driver.Answer{Left: ttl, Label: l.label} }

// waits returns the limits of a call that begins at the instant 0 and waits for the given time.
func waits(wait time.Duration) queue.Limits {
	return queue.Limits{Deadline: wait, GiveUp: wait + time.Second}
}

func retries(l queue.Limits) queue.Retries { return queue.NewRetries(jitter.New(), l) }

func newQueues(notifies bool) *queue.Queues[int] { return queue.New[int](jitter.New(), notifies) }

// join returns n waiters that have joined the queue at the instant 0. The first of them is asking.
func join(t *testing.T, qs *queue.Queues[int], n int, l queue.Limits) []*queue.Local[int] {
	t.Helper()
	var all []*queue.Local[int]
	for i := range n {
		w := new(queue.Local[int])
		w.Init(qs, id, terms, retries(l), i)
		step := w.Next(0)
		if i == 0 {
			require.Equal(t, queue.Ask, step.Move)
			require.False(t, step.Reserve, "no other call waits for the key")
		} else {
			require.Equal(t, queue.Rest, step.Move)
			require.True(t, step.Waiting)
		}
		all = append(all, w)
	}
	return all
}

// woken reports whether the waiter that returned s was woken.
func woken(s queue.Step) bool {
	select {
	case <-s.Wake:
		return true
	default:
		return false
	}
}

func TestRetries_ofACallThatDoesNotWait(t *testing.T) {
	undecided := busy(10 * ms)
	undecided.Grant.Reason = driver.Undecided
	for name, c := range map[string]struct {
		answer queue.Answer
		asked  int
	}{
		"the key is busy":           {busy(time.Second), 1},
		"the store does not answer": {queue.Answer{Err: unreachable}, 3},
		"the error is permanent":    {queue.Answer{Err: forbidden}, 1},
		"nobody holds the key":      {undecided, 11},
	} {
		t.Run(name, func(t *testing.T) {
			r := retries(queue.Limits{GiveUp: 5 * time.Second})
			asked := 1
			for now := time.Duration(0); ; asked++ {
				pause, again := r.After(now, c.answer)
				if !again {
					break
				}
				require.GreaterOrEqual(t, pause, time.Duration(0))
				now += pause
			}
			require.Equal(t, c.asked, asked)
		})
	}
}

func TestLocal_onlyTheHeadAsks(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 3, waits(time.Minute))
	all[0].Answer(ms, busy(time.Hour))
	head := all[0].Next(ms)
	require.Equal(t, queue.Rest, head.Move)
	require.LessOrEqual(t, head.Until, 11*ms, "the head polls")
	require.Equal(t, time.Minute, all[1].Next(ms).Until, "the second waiter does not poll")
	require.Equal(t, queue.Ask, all[0].Next(head.Until).Move)
	require.Equal(t, 1, qs.Len())
}

func TestLocal_theNextTakesOverFromAHeadThatLeaves(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 3, waits(time.Minute))
	second := all[1].Next(0)
	all[0].Leave()
	all[0].Leave() // does nothing
	require.True(t, woken(second))
	require.Equal(t, queue.Ask, all[1].Next(0).Move)
	all[2].Leave()
	all[1].Leave()
	require.Zero(t, qs.Len())
}

func TestLocal_sharesAFinalAnswerWithEarlierWaiters(t *testing.T) {
	for name, answer := range map[string]queue.Answer{"done": done("record"), "a permanent error": {Err: forbidden}} {
		t.Run(name, func(t *testing.T) {
			qs := newQueues(false)
			all := join(t, qs, 3, waits(time.Minute))
			steps := []queue.Step{{}, all[1].Next(0), all[2].Next(0)}
			all[0].Answer(ms, busy(time.Hour))
			ask := all[0].Next(time.Second)
			require.Equal(t, queue.Ask, ask.Move)
			var late queue.Local[int]
			late.Init(qs, id, terms, retries(waits(time.Minute)), 0)
			require.Equal(t, queue.Rest, late.Next(time.Second).Move)
			all[0].Answer(time.Second+ms, answer)
			for i, w := range all {
				require.True(t, i == 0 || woken(steps[i]))
				step := w.Next(time.Second + ms)
				require.Equal(t, queue.Quit, step.Move)
				require.Equal(t, answer.Err, step.Err)
				require.Equal(t, answer.Grant.State, step.Grant.State)
				if answer.Err == nil {
					step.Grant.Record[0]++ // each waiter has its own copy
				}
			}
			require.Equal(t, queue.Ask, late.Next(time.Second+ms).Move, "a later waiter asks for itself")
		})
	}
}

func TestLocal_asksNothingWhileALeaseOfTheProcessHoldsTheKey(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 2, waits(time.Minute))
	holder := &lease{"mine"}
	qs.Granted(ms, id, all[0], holder, trip, false)
	step := all[1].Next(time.Second)
	require.Equal(t, queue.Rest, step.Move)
	require.Equal(t, time.Minute, step.Until)
	require.Equal(t, "mine", step.Grant.Label)
	require.Equal(t, queue.Quit, all[1].Next(time.Minute).Move, "the waiter's time is up")
	require.Equal(t, 1, qs.Len(), "the queue still has a holder")
	qs.Releasing(time.Minute, "k", holder)
	require.Zero(t, qs.Len())
}

func TestLocal_aLeaseIsHandedOffToTheHeadWithTheSameTerms(t *testing.T) {
	for name, c := range map[string]struct {
		terms queue.Terms
		want  bool
	}{
		"the same":      {terms, true},
		"another TTL":   {queue.Terms{TTL: 2 * ttl, Renew: true}, false},
		"another owner": {queue.Terms{TTL: ttl, Renew: true, Owner: "o"}, false},
		"no renewal":    {queue.Terms{TTL: ttl}, false},
	} {
		t.Run(name, func(t *testing.T) {
			qs := newQueues(false)
			all := join(t, qs, 3, waits(time.Minute))
			holder, next := &lease{"first"}, &lease{"second"}
			qs.Granted(ms, id, all[0], holder, trip, false)
			step := all[1].Next(ms)
			w := qs.Successor("k", holder, c.terms)
			if !c.want {
				require.Nil(t, w)
				return
			}
			require.Equal(t, 1, w.Call())
			require.Nil(t, qs.Successor("k", next, terms), "next is not the holder yet")
			require.Nil(t, qs.Successor("other", holder, terms))
			qs.HandOff(w, next)
			require.True(t, woken(step))
			taken := all[1].Next(2 * ms)
			require.Equal(t, queue.Take, taken.Move)
			require.False(t, all[1].Leave(), "the lease was taken")
			require.Equal(t, 2, qs.Successor("k", next, terms).Call())
		})
	}
}

func TestLocal_leaveReportsALeaseThatWasNotTaken(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 2, waits(time.Minute))
	holder, next := &lease{"first"}, &lease{"second"}
	qs.Granted(ms, id, all[0], holder, trip, false)
	qs.HandOff(qs.Successor("k", holder, terms), next)
	require.True(t, all[1].Leave())
	require.False(t, all[1].Leave())
}

func TestLocal_reservesFencesIfOthersWait(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 2, waits(time.Minute))
	all[0].Answer(ms, busy(0))
	require.True(t, all[0].Next(time.Second).Reserve)
	all[0].Leave()
	require.True(t, all[1].Next(time.Second).Reserve, "the call that left the queue may come back")
}

func TestLocal_aWaiterThatAnnouncesIsOvertaken(t *testing.T) {
	qs := newQueues(false)
	l := waits(time.Minute)
	l.Announce = true
	var first, second queue.Local[int]
	first.Init(qs, id, terms, retries(l), 0)
	second.Init(qs, id, terms, retries(waits(time.Minute)), 0)
	require.Equal(t, queue.Ask, first.Next(0).Move)
	first.Answer(0, busy(time.Hour))
	waiting := second.Next(0)
	require.Equal(t, queue.Rest, waiting.Move)
	step := first.Next(0)
	require.Equal(t, queue.Announce, step.Move)
	require.Equal(t, "holder", step.Grant.Label)
	require.True(t, woken(waiting))
	require.Equal(t, queue.Ask, second.Next(time.Second).Move, "the second waiter is the head meanwhile")
	second.Answer(time.Second, busy(time.Hour))
	require.Equal(t, queue.Rest, first.Next(time.Second).Move)
	require.Equal(t, queue.Rest, second.Next(2*time.Second).Move, "the first waiter is the head again")
	require.Equal(t, queue.Ask, first.Next(2*time.Second).Move)
}

func TestLocal_theHeadAsksWhenTheLeaseIsLost(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 2, waits(time.Minute))
	holder := &lease{"mine"}
	qs.Granted(ms, id, all[0], holder, trip, false)
	step := all[1].Next(ms)
	qs.Lost(time.Second, "k", holder)
	require.True(t, woken(step))
	require.Equal(t, queue.Ask, all[1].Next(time.Second).Move)
}

func TestLocal_yieldsToOtherProcessesAfterARelease(t *testing.T) {
	qs := newQueues(false)
	all := join(t, qs, 2, waits(time.Minute))
	holder := &lease{"mine"}
	qs.Granted(ms, id, all[0], holder, trip, false)
	qs.Releasing(2*ms, "k", holder)
	require.Equal(t, queue.Rest, all[1].Next(3*ms).Move, "the release is under way")
	require.Equal(t, time.Minute, all[1].Next(3*ms).Until)
	qs.Released(3*ms, "k", 2*ms, trip)
	until := all[1].Next(3 * ms).Until
	require.GreaterOrEqual(t, until, 3*ms+3*trip)
	require.LessOrEqual(t, until, 3*ms+4*trip)
	require.Equal(t, queue.Ask, all[1].Next(until).Move)
}

// A Locker may say that nobody seems to hold the key without asking the store.
func TestLocal_anAnswerThatNobodyHoldsTheKey(t *testing.T) {
	undecided := queue.Answer{Grant: driver.Answer{State: driver.Busy, Reason: driver.Unsent, Left: 40 * ms}, Took: time.Microsecond}
	ask := func(t *testing.T, qs *queue.Queues[int], wait time.Duration) (w *queue.Local[int], again queue.Step) {
		t.Helper()
		w = join(t, qs, 1, waits(wait))[0]
		w.Answer(0, undecided)
		until := w.Next(0).Until
		require.LessOrEqual(t, until, 40*ms)
		require.Less(t, until, wait, "it asks again before its time is up")
		again = w.Next(until)
		require.Equal(t, queue.Ask, again.Move)
		return w, again
	}
	t.Run("it asks again in time", func(t *testing.T) { ask(t, newQueues(true), 8*ms) })
	t.Run("no lease has ended", func(t *testing.T) {
		_, again := ask(t, newQueues(true), time.Minute)
		require.Equal(t, queue.Previous{Ends: clock.Never}, again.Previous)
	})
	t.Run("it says nothing of the round trip", func(t *testing.T) {
		qs := newQueues(false)
		w, _ := ask(t, qs, time.Minute)
		holder := &lease{"mine"}
		qs.Granted(41*ms, id, w, holder, trip, false)
		next := new(queue.Local[int])
		next.Init(qs, id, terms, retries(waits(time.Minute)), 0)
		require.Equal(t, queue.Rest, next.Next(41*ms).Move)
		qs.Releasing(42*ms, "k", holder)
		qs.Released(43*ms, "k", 42*ms, trip)
		require.GreaterOrEqual(t, next.Next(43*ms).Until, 43*ms+3*trip)
	})
}

func TestLocal_aCallWhoseTimeIsUpLeavesWithTheLastAnswer(t *testing.T) {
	t.Run("busy", func(t *testing.T) {
		qs := newQueues(false)
		all := join(t, qs, 2, waits(time.Second))
		all[0].Answer(999*ms, busy(time.Hour))
		for _, w := range all {
			step := w.Next(time.Second)
			require.Equal(t, queue.Quit, step.Move)
			require.NoError(t, step.Err)
			require.Equal(t, time.Hour-ms, step.Grant.Left)
		}
	})
	t.Run("an old answer", func(t *testing.T) {
		qs := newQueues(false)
		all := join(t, qs, 2, waits(time.Second))
		all[0].Answer(ms, busy(time.Hour))
		require.Equal(t, queue.Ask, all[0].Next(time.Second).Move, "the head asks once more")
		require.Equal(t, queue.Quit, all[1].Next(time.Second).Move)
	})
	t.Run("no answer yet", func(t *testing.T) {
		qs := newQueues(false)
		all := join(t, qs, 2, waits(time.Second))
		step := all[1].Next(time.Second)
		require.Equal(t, queue.Rest, step.Move)
		require.Equal(t, 2*time.Second, step.Until, "the end of the grace period")
		all[0].Answer(1500*ms, busy(time.Hour))
		require.True(t, woken(step))
		require.Equal(t, queue.Quit, all[1].Next(1500*ms).Move)
	})
	t.Run("no answer at all", func(t *testing.T) {
		qs := newQueues(false)
		all := join(t, qs, 2, waits(time.Second))
		step := all[1].Next(2 * time.Second)
		require.Equal(t, queue.Quit, step.Move)
		require.ErrorIs(t, step.Err, queue.ErrUnanswered)
	})
	t.Run("an error", func(t *testing.T) {
		qs := newQueues(false)
		all := join(t, qs, 2, waits(time.Second))
		all[0].Answer(900*ms, queue.Answer{Err: unreachable})
		step := all[1].Next(time.Second)
		require.Equal(t, queue.Quit, step.Move)
		require.ErrorIs(t, step.Err, unreachable)
	})
}

func TestLocal_callsOfAnOwnerDoNotWaitForOneAnother(t *testing.T) {
	qs := newQueues(false)
	mine := queue.ID{Key: "k", Owner: "me"}
	var first, second queue.Local[int]
	first.Init(qs, mine, terms, retries(waits(time.Minute)), 0)
	second.Init(qs, mine, terms, retries(waits(time.Minute)), 0)
	require.Equal(t, queue.Ask, first.Next(0).Move)
	step := second.Next(0)
	qs.Granted(ms, mine, &first, &lease{"mine"}, trip, false)
	require.True(t, woken(step))
	step = second.Next(ms)
	require.Equal(t, queue.Ask, step.Move)
	require.False(t, step.Reserve, "the lease may be shared, so it is not handed off")
}
