package guardwatermill_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/stretchr/testify/require"

	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

// The router publishes after the handler. If that fails, the message comes again: the handler does
// not run again, and its messages are published.
func TestRouter_publishesAgainWhatItCouldNotPublish(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
	l := newLine(t, s.once)
	l.pub.fail = 3
	var runs atomic.Int64
	l.handle("billing", func(m *message.Message) ([]*message.Message, error) { runs.Add(1); return produce(m) })
	l.run(t)
	require.NoError(t, l.ps.Publish("orders", order("a")))
	require.ElementsMatch(t, []string{"uuid-1", "uuid-2"}, []string{l.next(t).UUID, l.next(t).UUID})
	require.Equal(t, int64(1), runs.Load())
	require.Equal(t, []string{"ran", "done", "done", "done"}, s.results())
	require.Equal(t, "billing", s.last().Name)
}

// Watermill's own Deduplicator marks a message before its handler runs, as docs/compare.md says: a
// message whose handler fails is lost. Behind guardwatermill it is handled until it succeeds.
func TestRouter_handlesAFailedMessageAgain(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
	for name, c := range map[string]struct {
		m    message.HandlerMiddleware
		want int64
	}{
		"guardwatermill": {s.once, 3},
		"Deduplicator":   {(&middleware.Deduplicator{Timeout: time.Minute}).Middleware, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLine(t, c.m)
			var runs atomic.Int64
			l.handle("billing", func(*message.Message) ([]*message.Message, error) {
				if runs.Add(1) < 3 {
					return nil, errFailed
				}
				return []*message.Message{message.NewMessage("handled", nil)}, nil
			})
			l.run(t)
			require.NoError(t, l.ps.Publish("orders", order("a")), "it was acknowledged")
			require.Equal(t, c.want, runs.Load())
			if c.want == 3 {
				require.Equal(t, "handled", l.next(t).UUID)
			}
			require.Empty(t, l.out)
		})
	}
}

// Handlers of one topic do not take each other's messages for done, unless they share a group.
func TestRouter_eachHandlerHasItsOwnKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts []guardwatermill.Option
		runs int64
	}{
		"own keys":  {nil, 2},
		"WithGroup": {[]guardwatermill.Option{guardwatermill.WithGroup("money")}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, byEvent, append(c.opts, guardwatermill.WithOnce(time.Hour))...)
			l := newLine(t, s.once)
			var runs atomic.Int64
			for _, name := range []string{"billing", "shipping"} {
				l.handle(name, func(*message.Message) ([]*message.Message, error) {
					runs.Add(1)
					return []*message.Message{message.NewMessage(name, nil)}, nil
				})
			}
			l.run(t)
			require.NoError(t, l.ps.Publish("orders", order("a")))
			l.next(t)
			l.next(t)
			require.Equal(t, c.runs, runs.Load())
		})
	}
}

// Retry behind the guard tries again under one lease. What fails for good goes to the poison queue
// in front of it, and leaves no marker.
func TestRouter_aPoisonedMessageLeavesNoMarker(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
	l := newLine(t)
	poison, err := middleware.PoisonQueueWithFilter(l.ps, "payments", func(err error) bool { return !guardwatermill.IsPostponed(err) })
	require.NoError(t, err)
	l.router.AddMiddleware(middleware.Recoverer, poison, s.once, middleware.Retry{MaxRetries: 2, InitialInterval: time.Millisecond}.Middleware)
	var runs atomic.Int64
	l.handle("billing", func(*message.Message) ([]*message.Message, error) { runs.Add(1); return nil, errFailed })
	l.run(t)
	require.NoError(t, l.ps.Publish("orders", order("a")))
	require.Contains(t, l.next(t).Metadata.Get(middleware.ReasonForPoisonedKey), errFailed.Error())
	require.Equal(t, int64(3), runs.Load())
	require.Equal(t, []string{"ran"}, s.results())
	require.NoError(t, l.ps.Publish("orders", order("a")))
	l.next(t)
	require.Equal(t, int64(6), runs.Load(), "the message that was sent again is handled")
}

// A handler that panics behind Recoverer is tried again.
func TestRouter_aPanicLeavesTheMessageToTheBroker(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
	l := newLine(t, middleware.Recoverer, s.once)
	var runs atomic.Int64
	l.handle("billing", func(m *message.Message) ([]*message.Message, error) {
		if runs.Add(1) == 1 {
			panic("a bug")
		}
		return []*message.Message{message.NewMessage("handled", nil)}, nil
	})
	l.run(t)
	require.NoError(t, l.ps.Publish("orders", order("a")))
	require.Equal(t, "handled", l.next(t).UUID)
	require.Equal(t, int64(2), runs.Load())
}
