package guardjetstream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardjetstream "github.com/seed-1795987d/onerun/middleware/jetstream"
)

func succeed(context.Context, jetstream.Msg) error { return nil }

func never(context.Context, jetstream.Msg) error { panic("the handler ran") }

var errFailed = errors.New("failed")

func TestHandler_answersByWhatTheHandlerReturned(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		nth     uint64
		backOff []time.Duration
		want    string
	}{
		"success":               {want: "ack"},
		"error":                 {err: errFailed, want: "nak 1s"},
		"error, third delivery": {err: errFailed, nth: 3, want: "nak 4s"},
		"error, much later":     {err: errFailed, nth: 1 << 40, want: "nak 1m0s"},
		"error, BackOff":        {err: errFailed, nth: 2, backOff: []time.Duration{5 * time.Second, 7 * time.Second}, want: "nak 5s"},
		"error, past BackOff":   {err: errFailed, nth: 9, backOff: []time.Duration{5 * time.Second, 7 * time.Second}, want: "nak 5s"},
		"permanent":             {err: fmt.Errorf("no such\ncustomer: %w", guardjetstream.ErrTerminate), want: "term no such customer: guardjetstream: the message is terminated"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := explicit
			cfg.BackOff = c.backOff
			s := newStand(t, cfg, guardjetstream.WithOnce(time.Hour))
			m := &message{id: "a", delivered: c.nth}
			s.m(func(ctx context.Context, _ jetstream.Msg) error {
				require.NotZero(t, guard.Fence(ctx))
				return c.err
			})(m)
			require.Equal(t, []string{c.want}, m.answers)
			require.Equal(t, "ran", s.last().Result)
			require.Equal(t, "billing", s.last().Name)
			require.NotZero(t, s.last().Fence)
			require.ErrorIs(t, s.last().Err, c.err)

			again := &message{id: "a"} // there is a marker only after a success
			if c.err == nil {
				s.m(never)(again)
				require.Equal(t, "done", s.last().Result)
				require.Empty(t, s.last().Skipped, "hooks received a Skip")
			} else {
				s.m(succeed)(again)
				require.Equal(t, "ran", s.last().Result)
			}
			require.Equal(t, []string{"ack"}, again.answers)
		})
	}
}

// A handler that panics, or ends its goroutine, leaves neither a marker nor an answer.
func TestHandler_thatDoesNotReturnLeavesNothing(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic(errFailed) }, "goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, explicit, guardjetstream.WithOnce(time.Hour))
			m, ended := &message{id: "a"}, make(chan any)
			go func() {
				defer func() { ended <- recover() }()
				s.m(func(context.Context, jetstream.Msg) error { end(); return nil })(m)
			}()
			if got := <-ended; name == "panic" {
				require.Equal(t, errFailed, got)
			}
			require.Empty(t, m.answers)
			require.True(t, s.last().Aborted)
			again := &message{id: "a"}
			s.m(succeed)(again)
			require.Equal(t, "ran", s.last().Result)
		})
	}
}

func TestHandler_keepsTheMessageAsLongAsItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, explicit)
		m := &message{id: "a"}
		s.m(func(context.Context, jetstream.Msg) error {
			require.Equal(t, 1, m.inProgress(), "at once: it may have waited in a buffer")
			time.Sleep(10*time.Second + time.Millisecond)
			return nil
		})(m)
		require.Equal(t, 11, m.inProgress(), "each third of the AckWait")
		time.Sleep(time.Minute)
		require.Equal(t, 11, m.inProgress())
	})
}

// A BackOff replaces the AckWait. Its shortest step counts.
func TestHandler_keepsTheMessageWithinTheShortestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := explicit
		cfg.BackOff = []time.Duration{300 * time.Millisecond, time.Minute}
		s, m := newStand(t, cfg), &message{id: "a"}
		s.m(func(context.Context, jetstream.Msg) error { time.Sleep(1001 * time.Millisecond); return nil })(m)
		require.Equal(t, 11, m.inProgress())
	})
}

// When its lease is lost, another process may run the message: the server must deliver it again.
func TestHandler_doesNotKeepAMessageWhoseLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, explicit, guardjetstream.WithOnce(time.Hour), guardjetstream.WithLease(guard.WithMaxHold(5*time.Second)))
		m := &message{id: "a"}
		s.m(func(ctx context.Context, _ jetstream.Msg) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), guard.ErrLost)
			n := m.inProgress()
			time.Sleep(time.Minute)
			require.Equal(t, n, m.inProgress())
			return ctx.Err()
		})(m)
		require.Equal(t, []string{"nak 1s"}, m.answers)
		require.ErrorIs(t, s.last().Err, guard.ErrLost)
		s.m(succeed)(&message{id: "a"})
		require.Equal(t, "ran", s.last().Result, "there is no marker")
	})
}

func TestHandler_thatSucceededAfterALossIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, explicit, guardjetstream.WithLease(guard.WithMaxHold(5*time.Second)))
		m := &message{id: "a"}
		s.m(func(ctx context.Context, _ jetstream.Msg) error { <-ctx.Done(); return nil })(m)
		require.Equal(t, []string{"ack"}, m.answers)
		require.ErrorIs(t, s.last().Err, guard.ErrLost)
	})
}

func TestHandler_whoseKeyIsBusy(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []guardjetstream.Option
		want   string
		result string
	}{
		"default":      {want: "nak 1", result: "postponed"}, // 15 s and more
		"WithDelay":    {opts: []guardjetstream.Option{guardjetstream.WithDelay(time.Hour)}, want: "nak 1h", result: "postponed"},
		"Skip":         {opts: []guardjetstream.Option{guardjetstream.WithBusy(guardjetstream.Skip)}, want: "ack", result: "skipped"},
		"Fail":         {opts: []guardjetstream.Option{guardjetstream.WithBusy(guardjetstream.Fail)}, want: "nak 1s", result: "busy"},
		"WithWait":     {opts: []guardjetstream.Option{guardjetstream.WithWait(time.Hour)}, want: "ack", result: "ran"},
		"its own time": {opts: []guardjetstream.Option{guardjetstream.WithBusy(guardjetstream.Fail), retryAfter(7 * time.Second)}, want: "nak 7s", result: "busy"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var key guardjetstream.KeyFunc
				if name == "Skip" {
					key = guardjetstream.FromMessage()
				}
				s := newStandOf(t, key, explicit, c.opts...)
				first, second := make(chan struct{}), &message{id: "a"}
				go s.m(func(context.Context, jetstream.Msg) error { <-first; return nil })(&message{id: "a"})
				synctest.Wait()
				go func() {
					time.Sleep(100 * time.Second)
					close(first)
				}()
				s.m(succeed)(second)
				require.Len(t, second.answers, 1)
				require.Contains(t, second.answers[0], c.want)
				require.Equal(t, c.result, s.last().Result)
				if c.result == "ran" {
					require.Greater(t, second.inProgress(), 50, "it waited for 100 s")
				}
				<-first
				synctest.Wait()
			})
		})
	}
}

func retryAfter(d time.Duration) guardjetstream.Option {
	return guardjetstream.WithRetryDelay(func(jetstream.Msg, error) time.Duration { return d })
}

// lastAttempt returns a stand of a consumer that delivers a message once, where a run holds the key
// a until end is closed.
func lastAttempt(t *testing.T) (s *stand, end chan struct{}) {
	cfg := explicit
	cfg.MaxDeliver = 1
	s, end = newStand(t, cfg), make(chan struct{})
	go s.m(func(context.Context, jetstream.Msg) error { <-end; return nil })(&message{id: "a"})
	synctest.Wait()
	return s, end
}

// With a MaxDeliver, each delivery counts, and the last one would never come back. So a message
// that did not run stays with its consumer.
func TestHandler_costsNoAttemptWithoutARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, first := lastAttempt(t)
		second := &message{id: "a"}
		go func() {
			time.Sleep(100 * time.Second)
			close(first)
		}()
		began := time.Now()
		s.m(succeed)(second)
		require.Equal(t, 100*time.Second, time.Since(began), "it begins when the key is released")
		require.Equal(t, []string{"ack"}, second.answers)
		require.Equal(t, "ran", s.last().Result)
		require.Greater(t, second.inProgress(), 90)
	})
}

// A message that waits with its consumer does not hold up a shutdown: the Guard's Close ends its
// wait.
func TestHandler_waitsNoLongerThanTheGuardIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := lastAttempt(t)
		second := &message{id: "a"}
		go func() {
			time.Sleep(3 * time.Second)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = s.guard.Close(ctx)
		}()
		began := time.Now()
		s.m(never)(second)
		require.Less(t, time.Since(began), 5*time.Second)
		require.Equal(t, "unavailable", s.last().Result)
		require.Len(t, second.answers, 1)
		close(end)
		synctest.Wait()
	})
}

func TestHandler_ofAClosedGuardComesBack(t *testing.T) {
	for _, limit := range []int{0, 3} {
		cfg := explicit
		cfg.MaxDeliver = limit
		s, m := newStand(t, cfg), &message{id: "a"}
		require.NoError(t, s.guard.Close(t.Context()))
		s.m(never)(m)
		require.Len(t, m.answers, 1)
		require.Regexp(t, "^nak [56]s$", m.answers[0])
		require.Equal(t, "unavailable", s.last().Result)
	}
}

// A server that restarts may have lost the acknowledgement, or have no responder yet.
func TestAck_isSentAgainUntilItIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, explicit)
		m := &message{id: "a", ackErr: []error{nats.ErrNoResponders, context.DeadlineExceeded}}
		began := time.Now()
		s.m(succeed)(m)
		require.Equal(t, []string{"ack"}, m.answers)
		require.NoError(t, s.last().Err)
		require.Equal(t, 2*time.Second, time.Since(began))

		m = &message{id: "a", ackErr: []error{nats.ErrNoResponders, nats.ErrNoResponders, nats.ErrNoResponders}}
		s.m(succeed)(m)
		require.Empty(t, m.answers)
		require.Equal(t, "ran", s.last().Result)
		require.ErrorIs(t, s.last().Err, nats.ErrNoResponders)

		m = &message{id: "a", ackErr: []error{nats.ErrConnectionClosed}}
		began = time.Now()
		s.m(succeed)(m)
		require.Zero(t, time.Since(began))
		require.ErrorIs(t, s.last().Err, nats.ErrConnectionClosed)
	})
}
