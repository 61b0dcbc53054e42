package queue_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/internal/jitter"
	"github.com/seed-1795987d/onerun/guard/internal/queue"
)

// newFair returns a Fair waiter that has found the key busy, and its subscription. ended counts
// how often the subscription was ended.
func newFair(t *testing.T, l queue.Limits, ended *int) (*queue.Fair, *queue.Subscription) {
	t.Helper()
	w := queue.NewFair(retries(l), ttl, func(stop func()) { stop() })
	require.Equal(t, queue.Ask, w.Next(0).Move)
	w.Answer(0, busy(time.Minute))
	step := w.Next(0)
	require.Equal(t, queue.Rest, step.Move)
	require.LessOrEqual(t, step.Until, jitter.FirstPoll, "the waiter polls until the subscription has begun")
	require.NotNil(t, step.Subscribe)
	require.False(t, step.Subscribe.Started(func() { *ended++ }))
	return w, step.Subscribe
}

func TestFair_sleepsUntilItIsNotified(t *testing.T) {
	ended := 0
	w, s := newFair(t, waits(time.Hour), &ended)
	s.Notify(ms, 0)
	require.Equal(t, queue.Ask, w.Next(ms).Move, "the waiter asks when the subscription begins")
	w.Answer(2*ms, busy(time.Minute))
	step := w.Next(2 * ms)
	require.Equal(t, queue.Rest, step.Move)
	require.GreaterOrEqual(t, step.Until, ttl/2)
	require.LessOrEqual(t, step.Until, ttl*6/10, "the waiter asks often enough to keep its position")
	s.Notify(time.Second, 0)
	require.True(t, woken(step))
	ask := w.Next(time.Second)
	require.Equal(t, queue.Ask, ask.Move)
	require.False(t, ask.Unprompted)
	w.Leave()
	w.Leave()
	require.Equal(t, 1, ended)
	s.Notify(2*time.Second, 0) // after the subscription has ended
}

func TestFair_asksAtTheEndOfTheHoldersLease(t *testing.T) {
	ended := 0
	w, s := newFair(t, waits(time.Hour), &ended)
	s.Notify(0, 0)
	w.Next(0)
	w.Answer(0, busy(time.Second))
	step := w.Next(0)
	require.InDelta(t, time.Second+ms, step.Until, float64(2*ms))
	ask := w.Next(step.Until)
	require.Equal(t, queue.Ask, ask.Move)
	require.True(t, ask.Unprompted)
	require.Equal(t, time.Second, ask.Previous.Ends)
}

func TestFair_checksWhetherTheNotifiedClaimHasAsked(t *testing.T) {
	ended := 0
	w, s := newFair(t, waits(time.Hour), &ended)
	s.Notify(0, 0)
	w.Next(0)
	w.Answer(0, busy(time.Minute))
	s.Notify(time.Second, driver.NotifyGrace)
	require.Equal(t, time.Second+driver.NotifyGrace, w.Next(time.Second).Until)
	s.Notify(time.Second+ms, -1) // the notified claim holds the key now, for an unknown time
	step := w.Next(time.Second + ms)
	require.Equal(t, queue.Rest, step.Move)
	require.LessOrEqual(t, step.Until, time.Second+ms+jitter.LongestPoll)
}

func TestFair_givesUpAtItsDeadline(t *testing.T) {
	ended := 0
	w, s := newFair(t, waits(time.Second), &ended)
	s.Notify(0, 0)
	w.Next(0)
	w.Answer(0, busy(time.Minute))
	step := w.Next(0)
	require.Equal(t, time.Second, step.Until)
	quit := w.Next(time.Second)
	require.Equal(t, queue.Quit, quit.Move)
	require.Equal(t, time.Minute-time.Second, quit.Grant.Left)

	w, s = newFair(t, waits(time.Second), &ended)
	s.Notify(time.Second, 0)
	require.Equal(t, queue.Ask, w.Next(time.Second).Move, "the waiter was notified just in time")
}

func TestFair_doneAndErrors(t *testing.T) {
	ended := 0
	w, _ := newFair(t, waits(time.Second), &ended)
	w.Next(time.Second / 2)
	w.Answer(time.Second/2, done("record"))
	require.Equal(t, driver.Done, w.Next(time.Second/2).Grant.State)

	w, _ = newFair(t, waits(time.Second), &ended)
	w.Answer(time.Second/2, queue.Answer{Err: unreachable})
	step := w.Next(time.Second / 2)
	require.Equal(t, queue.Rest, step.Move)
	require.Less(t, step.Until, time.Second)
	require.Equal(t, queue.Ask, w.Next(step.Until).Move)
	w.Answer(step.Until, queue.Answer{Err: forbidden})
	require.ErrorIs(t, w.Next(step.Until).Err, forbidden)
}
