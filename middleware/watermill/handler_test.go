package guardwatermill_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

var (
	byEvent   = guardwatermill.FromMetadata("event_id")
	errFailed = errors.New("failed")
)

// The record has all that the messages have, and a repeat finds it.
func TestOnce_aRepeatPublishesTheSameMessages(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
	first, err := s.once(produce)(order("a"))
	require.NoError(t, err)
	again, err := s.once(never)(order("a"))
	require.NoError(t, err)
	require.Len(t, again, 2)
	for i := range first {
		require.True(t, first[i].Equals(again[i]), "%v", again[i])
	}
	require.Equal(t, []string{"ran", "done"}, s.results())
	require.NotZero(t, s.last().Start)
	require.Empty(t, s.last().Skipped, "hooks received a Skip")

	none, err := s.once(succeed)(order("b"))
	require.NoError(t, err)
	require.Empty(t, none)
	none, err = s.once(never)(order("b"))
	require.NoError(t, err)
	require.Empty(t, none, "that run produced nothing")
}

// A handler that fails, panics or ends its goroutine leaves neither a marker nor a busy key.
func TestOnce_noMarkerOfARunThatFailed(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func() error{
		"error":  func() error { return errFailed },
		"panic":  func() error { panic(errFailed) },
		"goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
			type end2 struct {
				err      error
				panicked any
			}
			ended := make(chan end2, 1)
			go func() {
				var e end2
				defer func() { e.panicked = recover(); ended <- e }()
				_, e.err = s.once(func(*message.Message) ([]*message.Message, error) { return nil, end() })(order("a"))
			}()
			switch e := <-ended; name {
			case "error":
				require.ErrorIs(t, e.err, errFailed)
			case "panic":
				require.Equal(t, errFailed, e.panicked)
			}
			require.Equal(t, name != "error", s.last().Aborted)
			_, err := s.once(produce)(order("a"))
			require.NoError(t, err)
			require.Equal(t, []string{"ran", "ran"}, s.results())
		})
	}
}

// What is too large to keep is published, and the work is done again: a marker without messages
// would lose them.
func TestOnce_noMarkerWithoutItsMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler message.HandlerFunc
		want    string
		count   int
	}{
		"too large": {produce, "WithMaxRecord", 2},
		"nil":       {func(*message.Message) ([]*message.Message, error) { return []*message.Message{nil}, nil }, "produced message 1 is nil", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour), guardwatermill.WithMaxRecord(40))
			for range 2 {
				msgs, err := s.once(c.handler)(order("a"))
				require.NoError(t, err)
				require.Len(t, msgs, c.count)
				require.Equal(t, "ran", s.last().Result)
				require.ErrorContains(t, s.last().Refused, c.want)
				require.NoError(t, s.last().Err)
			}
		})
	}
}

func TestHandler_whoseLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour), guardwatermill.WithLease(guard.WithMaxHold(5*time.Second)))
		msgs, err := s.once(func(m *message.Message) ([]*message.Message, error) {
			<-m.Context().Done()
			require.ErrorIs(t, context.Cause(m.Context()), guard.ErrLost)
			return produce(m)
		})(order("a"))
		require.ErrorIs(t, err, guard.ErrLost, "another run may have the key: the message comes again")
		require.Empty(t, msgs)
		require.False(t, guardwatermill.IsPostponed(err), "it would end the next run, too: it is for a poison queue")
		_, err = s.once(produce)(order("a"))
		require.NoError(t, err)
		require.Equal(t, []string{"ran", "ran"}, s.results())
	})
}

// Guard.Close revokes the lease of a run that does not end. Another run may have its key.
func TestHandler_whoseLeaseIsRevokedByClose(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]func(context.Context) error{
		"its context": context.Context.Err, "nil": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStand(t, byEvent, guardwatermill.WithOnce(time.Hour))
				msgs, err := s.once(func(m *message.Message) ([]*message.Message, error) {
					go func() {
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						defer cancel()
						_ = s.guard.Close(ctx)
					}()
					<-m.Context().Done()
					msgs, _ := produce(m)
					return msgs, returns(m.Context())
				})(order("a"))
				require.ErrorIs(t, err, guard.ErrClosed)
				require.True(t, guardwatermill.IsPostponed(err))
				require.Empty(t, msgs)
				require.ErrorIs(t, s.last().Err, guard.ErrClosed)
			})
		})
	}
}

// A publisher may look at the context of a produced message, which must not end with the lease.
func TestHandler_whoseMessagesHaveItsContext(t *testing.T) {
	t.Parallel()
	s := newStand(t, byEvent)
	msgs, err := s.once(func(m *message.Message) ([]*message.Message, error) {
		return []*message.Message{m.CopyWithContext(), message.NewMessage("own", nil)}, nil
	})(order("a"))
	require.NoError(t, err)
	for _, m := range msgs {
		require.NoError(t, m.Context().Err())
	}
	require.Equal(t, "a", guardwatermill.Key(msgs[0].Context()), "the values stay")
}

// An outage of the store ends a lease, and says nothing of the message.
func TestHandler_whoseLeaseEndsInAnOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		returns   func(context.Context) error
		postponed bool
	}{
		"its context": {context.Context.Err, true},
		"its cause":   {context.Cause, true},
		"its own":     {func(context.Context) error { return errFailed }, false},
		"both":        {func(ctx context.Context) error { return errors.Join(ctx.Err(), errFailed) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &outage{Locker: memory.New()}
				s := newStandOn(t, store, byEvent, guardwatermill.WithOnce(time.Hour))
				msgs, err := s.once(func(m *message.Message) ([]*message.Message, error) {
					store.begins.Store(true)
					<-m.Context().Done()
					store.begins.Store(false)
					return nil, c.returns(m.Context())
				})(order("a"))
				require.Empty(t, msgs)
				require.ErrorIs(t, err, guard.ErrLost)
				require.Equal(t, c.postponed, guardwatermill.IsPostponed(err))
				require.Equal(t, "ran", s.last().Result)
				require.ErrorIs(t, s.last().Err, guard.ErrLost)
			})
		})
	}
}

// The handler's context is that of its lease, and the message has its own one again after it.
func TestHandler_hasItsLeaseInTheContext(t *testing.T) {
	t.Parallel()
	type own struct{}
	s := newStand(t, byEvent)
	m := order("a")
	ctx := context.WithValue(t.Context(), own{}, "mine")
	m.SetContext(ctx)
	_, err := s.once(func(m *message.Message) ([]*message.Message, error) {
		require.NotZero(t, guard.Fence(m.Context()))
		require.Equal(t, "a", guardwatermill.Key(m.Context()))
		require.Equal(t, "mine", m.Context().Value(own{}))
		return nil, nil
	})(m)
	require.NoError(t, err)
	require.Equal(t, ctx, m.Context())
	require.Empty(t, guardwatermill.Key(m.Context()))
	require.NotZero(t, s.last().Fence)
}

// What a message does while another one of its key is handled.
func TestBusy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   []guardwatermill.Option
		after  time.Duration
		result string
	}{
		"Requeue":           {[]guardwatermill.Option{guardwatermill.WithWait(0)}, time.Second, "postponed"},
		"Requeue, WithWait": {nil, 21 * time.Second, "postponed"},
		"WithDelay":         {[]guardwatermill.Option{guardwatermill.WithDelay(7 * time.Second), guardwatermill.WithWait(0)}, 7 * time.Second, "postponed"},
		"Skip":              {[]guardwatermill.Option{guardwatermill.WithBusy(guardwatermill.Skip), guardwatermill.WithWait(0)}, 0, "skipped"},
		"Fail":              {[]guardwatermill.Option{guardwatermill.WithBusy(guardwatermill.Fail), guardwatermill.WithWait(0)}, time.Second, "busy"},
		"a longer WithWait": {[]guardwatermill.Option{guardwatermill.WithWait(time.Hour)}, time.Minute, "ran"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStand(t, byEvent, c.opts...)
				var first error
				go func() {
					_, first = s.once(func(*message.Message) ([]*message.Message, error) { time.Sleep(time.Minute); return nil, nil })(order("a"))
				}()
				synctest.Wait()
				began := time.Now()
				handler := never
				if c.result == "ran" {
					handler = succeed
				}
				_, err := s.once(handler)(order("a"))
				require.InDelta(t, c.after.Seconds(), time.Since(began).Seconds(), 0.3)
				require.Equal(t, c.result, s.last().Result)
				require.Equal(t, c.result == "postponed" || c.result == "busy", errors.Is(err, guard.ErrBusy), "%v", err)
				require.Equal(t, c.result == "postponed", guardwatermill.IsPostponed(err))
				_, err = s.once(succeed)(order("b"))
				require.NoError(t, err, "another key is free")
				time.Sleep(time.Minute)
				synctest.Wait()
				require.NoError(t, first)
			})
		})
	}
}

// A message whose context ends while it waits is not handled.
func TestWait_endsWithTheContextOfTheMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, byEvent)
		go func() {
			_, _ = s.once(func(*message.Message) ([]*message.Message, error) { time.Sleep(time.Minute); return nil, nil })(order("a"))
		}()
		synctest.Wait()
		m := order("a")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		m.SetContext(ctx)
		began := time.Now()
		_, err := s.once(never)(m)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, guardwatermill.IsPostponed(err), "it is not for a poison queue")
		require.Equal(t, 3*time.Second, time.Since(began))
		require.Equal(t, "canceled", s.last().Result)
		time.Sleep(time.Minute)
	})
}

// While the Guard cannot be used, no handler runs, and the message is no poison.
func TestUnavailable_theMessageComesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, byEvent)
		require.NoError(t, s.guard.Close(t.Context()))
		began := time.Now()
		_, err := s.once(never)(order("a"))
		require.Equal(t, time.Second, time.Since(began), "WithDelay: the broker may deliver it again at once")
		require.ErrorIs(t, err, guard.ErrClosed)
		require.True(t, guardwatermill.IsPostponed(err))
		require.Equal(t, "unavailable", s.last().Result)
	})
}
