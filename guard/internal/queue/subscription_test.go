package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

func TestLocal_subscribesOnceAndUnsubscribesWithTheLast(t *testing.T) {
	qs := newQueues(true)
	all := join(t, qs, 2, waits(time.Hour))
	all[0].Answer(ms, busy(-1))
	step := all[0].Next(ms)
	require.NotNil(t, step.Subscribe)
	require.Nil(t, all[0].Next(ms).Subscribe)
	require.Nil(t, all[1].Next(ms).Subscribe)
	stopped := 0
	require.False(t, step.Subscribe.Started(func() { stopped++ }))
	step.Subscribe.Notify(2*ms, 0)
	require.True(t, woken(step))
	require.Equal(t, queue.Ask, all[0].Next(2*ms).Move, "the waiter asks when the subscription begins")
	all[0].Answer(3*ms, busy(-1))
	rest := all[0].Next(3 * ms)
	require.GreaterOrEqual(t, rest.Until, ttl/2)
	require.LessOrEqual(t, rest.Until, ttl*6/10, "the head still asks now and then, because a notification can be lost")
	step.Subscribe.Notify(time.Second, 0)
	require.Equal(t, queue.Ask, all[0].Next(time.Second).Move)
	step.Subscribe.Notify(time.Second, 0) // while a request is under way
	all[0].Answer(time.Second+ms, busy(-1))
	require.Equal(t, queue.Ask, all[0].Next(time.Second+ms).Move, "the key may have become free meanwhile")
	all[0].Leave()
	all[1].Leave()
	for _, stop := range qs.Ended() {
		stop()
	}
	require.Equal(t, 1, stopped)
	step.Subscribe.Notify(2*time.Second, 0) // after the subscription has ended
	require.Empty(t, qs.Ended())
}

// The answer to a request may end the queue. A notification that came meanwhile is then for nobody.
func TestLocal_anAnswerAfterANotification(t *testing.T) {
	answers := map[string]queue.Answer{
		"busy": busy(-1), "done": done("record"), "a permanent error": {Err: forbidden}, "an error": {Err: unreachable},
	}
	for name, answer := range answers {
		for _, others := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s, %d others", name, others), func(t *testing.T) {
				qs := newQueues(true)
				all := join(t, qs, 1+others, waits(time.Hour))
				all[0].Answer(ms, busy(-1))
				step := all[0].Next(ms)
				require.False(t, step.Subscribe.Started(func() {}))
				step.Subscribe.Notify(2*ms, 0)
				require.Equal(t, queue.Ask, all[0].Next(2*ms).Move)
				step.Subscribe.Notify(2*ms, 0)
				all[0].Answer(3*ms, answer)
				var later queue.Local[int]
				later.Init(qs, id, terms, retries(waits(time.Hour)), 0)
				isFinal := answer.Grant.State == driver.Done || queue.Permanent(answer.Err)
				for i, w := range append(all, &later) {
					move := w.Next(3 * ms).Move
					asks := i == len(all) && isFinal || i == 0 && !isFinal
					require.Equal(t, asks, move == queue.Ask, "waiter %d: %v", i, move)
					require.Equal(t, i < len(all) && isFinal, move == queue.Quit, "waiter %d: %v", i, move)
				}
			})
		}
	}
}

// subscribed returns a waiter whose queue is subscribed, and which has asked after that.
func subscribed(t *testing.T, qs *queue.Queues[int], id queue.ID, terms queue.Terms) (*queue.Local[int], *queue.Subscription) {
	t.Helper()
	w := new(queue.Local[int])
	w.Init(qs, id, terms, retries(waits(time.Hour)), 0)
	require.Equal(t, queue.Ask, w.Next(0).Move)
	w.Answer(0, busy(time.Hour))
	sub := w.Next(0).Subscribe
	sub.Notify(0, 0)
	require.Equal(t, queue.Ask, w.Next(0).Move)
	w.Answer(0, busy(time.Hour))
	require.Equal(t, ttl/2, w.Next(0).Until.Truncate(ttl/2))
	return w, sub
}

func TestLocal_letsOthersAskBeforeIfItIsNotifiedForLater(t *testing.T) {
	w, sub := subscribed(t, newQueues(true), id, terms)
	sub.Notify(0, 50*ms)
	step := w.Next(0)
	require.Equal(t, 50*ms, step.Until)
	require.True(t, woken(step), "it slept for longer")
	sub.Notify(10*ms, 80*ms) // another release: the key was taken
	require.Equal(t, 90*ms, w.Next(60*ms).Until)
	step = w.Next(90 * ms)
	require.Equal(t, queue.Ask, step.Move)
	require.False(t, step.Unprompted, "no notification was missed")

	sub.Notify(90*ms, 5*ms) // of a release after the answer, perhaps
	w.Answer(91*ms, busy(time.Hour))
	require.Equal(t, 95*ms, w.Next(91*ms).Until)
	sub.Notify(92*ms, time.Hour)
	require.Equal(t, ttl/2, (w.Next(95*ms).Until - 91*ms).Truncate(ttl/2), "its polling is the bound")
	sub.Notify(100*ms, 0)
	require.Equal(t, queue.Ask, w.Next(100*ms).Move)
}

func TestLocal_asksAtOnceIfOthersNeedNotKeepTheKeyAway(t *testing.T) {
	shares, prompt, owned := terms, terms, terms
	shares.MaxHolders, prompt.Prompt, owned.Owner = 3, true, "o"
	for _, c := range []struct {
		id    queue.ID
		terms queue.Terms
	}{{id, shares}, {id, prompt}, {queue.ID{Key: "k", Owner: "o"}, owned}} {
		w, sub := subscribed(t, newQueues(true), c.id, c.terms)
		sub.Notify(0, time.Second)
		require.Equal(t, queue.Ask, w.Next(0).Move)
	}
}

// The claim waited for the pause of the head before it, or until half a TTL had passed.
func TestLocal_thatSharesAsksWhenTheHeadLeavesThatWasToAskLater(t *testing.T) {
	for maxHolders, want := range map[int]queue.Move{1: queue.Rest, 3: queue.Ask} {
		qs, shares := newQueues(true), terms
		shares.MaxHolders = maxHolders
		head, sub := subscribed(t, qs, id, terms)
		next := new(queue.Local[int])
		next.Init(qs, id, shares, retries(waits(time.Hour)), 0)
		require.Equal(t, queue.Rest, next.Next(0).Move)
		sub.Notify(ms, time.Hour)
		require.Equal(t, queue.Rest, head.Next(ms).Move)
		head.Leave()
		require.Equal(t, want, next.Next(2*ms).Move)
	}
}

func TestSubscription_thatStartsTooLateIsOver(t *testing.T) {
	qs := newQueues(true)
	all := join(t, qs, 1, waits(time.Hour))
	all[0].Answer(ms, busy(-1))
	step := all[0].Next(ms)
	all[0].Leave()
	require.Empty(t, qs.Ended())
	require.True(t, step.Subscribe.Started(func() {}))
}
