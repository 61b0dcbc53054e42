package idempotent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// What the first call leaves, and what the second one with its key gets.
func TestLead_aCallAfterTheFirst(t *testing.T) {
	t.Parallel()
	reject, exclusive := idempotency.WithMode(idempotency.Reject), idempotency.WithMode(idempotency.Exclusive)
	large := func(context.Context) (string, error) { return strings.Repeat("x", 100), nil }
	for name, c := range map[string]struct {
		opts          []idempotency.Option
		handler       handler
		first, second request
		after         time.Duration // between the calls
		kept          idempotency.Keep
		result        idempotency.Result // of the second call
	}{
		"replay":              {kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"the same print":      {first: request{print: "a"}, second: request{print: "a"}, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"another print":       {first: request{print: "a"}, second: request{print: "b"}, kept: idempotency.KeepAnswer, result: idempotency.Mismatch},
		"no print at first":   {second: request{print: "b"}, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"no print any more":   {first: request{print: "a"}, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"another key":         {second: request{key: "other"}, kept: idempotency.KeepAnswer, result: idempotency.Ran},
		"another scope":       {second: request{scope: "other"}, kept: idempotency.KeepAnswer, result: idempotency.Ran},
		"at the end":          {after: 24*time.Hour - time.Second, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"after the end":       {after: 24*time.Hour + time.Second, kept: idempotency.KeepAnswer, result: idempotency.Ran},
		"after its own end":   {opts: []idempotency.Option{idempotency.WithOnce(time.Minute)}, after: 61 * time.Second, kept: idempotency.KeepAnswer, result: idempotency.Ran},
		"failed":              {handler: fails, kept: idempotency.KeepNothing, result: idempotency.Ran},
		"too large":           {opts: []idempotency.Option{idempotency.WithMaxAnswer(99)}, handler: large, kept: idempotency.KeepTombstone, result: idempotency.NotReplayable},
		"just not too large":  {opts: []idempotency.Option{idempotency.WithMaxAnswer(100)}, handler: large, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"too large, rerun":    {opts: []idempotency.Option{idempotency.WithMaxAnswer(99), idempotency.WithRerun()}, handler: large, kept: idempotency.KeepNothing, result: idempotency.Ran},
		"reject":              {opts: []idempotency.Option{reject}, kept: idempotency.KeepTombstone, result: idempotency.Done},
		"reject, failed":      {opts: []idempotency.Option{reject}, handler: fails, kept: idempotency.KeepNothing, result: idempotency.Ran},
		"reject, rerun":       {opts: []idempotency.Option{reject, idempotency.WithRerun()}, kept: idempotency.KeepTombstone, result: idempotency.Done},
		"exclusive":           {opts: []idempotency.Option{exclusive}, kept: idempotency.KeepNothing, result: idempotency.Ran},
		"answer chosen":       {handler: chooses(errHandler, idempotency.KeepAnswer), kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"nothing chosen":      {handler: chooses(nil, idempotency.KeepNothing), kept: idempotency.KeepNothing, result: idempotency.Ran},
		"tombstone chosen":    {handler: chooses(nil, idempotency.KeepTombstone), kept: idempotency.KeepTombstone, result: idempotency.NotReplayable},
		"failed, tombstone":   {handler: chooses(errHandler, idempotency.KeepTombstone), kept: idempotency.KeepTombstone, result: idempotency.NotReplayable},
		"the last choice":     {handler: chooses(nil, idempotency.KeepNothing, idempotency.KeepAnswer), kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"reject, answer":      {opts: []idempotency.Option{reject}, handler: chooses(errHandler, idempotency.KeepAnswer), kept: idempotency.KeepTombstone, result: idempotency.Done},
		"reject, nothing":     {opts: []idempotency.Option{reject}, handler: chooses(nil, idempotency.KeepNothing), kept: idempotency.KeepNothing, result: idempotency.Ran},
		"exclusive, answer":   {opts: []idempotency.Option{exclusive}, handler: chooses(nil, idempotency.KeepAnswer), kept: idempotency.KeepNothing, result: idempotency.Ran},
		"encrypted":           {opts: []idempotency.Option{encryptWith("a")}, kept: idempotency.KeepAnswer, result: idempotency.Replayed},
		"encrypted tombstone": {opts: []idempotency.Option{encryptWith("a"), reject}, kept: idempotency.KeepTombstone, result: idempotency.Done},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, newStore(), c.opts...)
				c.first.handler, c.second.handler = c.handler, c.handler
				first := s.send(t.Context(), c.first)
				require.Equal(t, idempotency.Ran, first.Result)
				require.Equal(t, c.kept, first.Kept)
				time.Sleep(c.after)
				second := s.send(t.Context(), c.second)
				require.Equal(t, c.result, second.Result)
				if c.result == idempotency.Ran {
					require.Equal(t, 2, s.runs)
					return
				}
				require.Equal(t, 1, s.runs)
				if c.result == idempotency.Replayed {
					require.Equal(t, first.answer, second.answer)
				}
				if c.result == idempotency.Done {
					require.Equal(t, 24*time.Hour, second.RetryAfter)
				}
			})
		})
	}
}

// A call that comes while the first one runs, which ends after a second.
func TestLead_aCallWhileTheFirstRuns(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) []idempotency.Option { return []idempotency.Option{idempotency.WithWait(d)} }
	for name, c := range map[string]struct {
		opts   []idempotency.Option
		first  error // of the handler
		ends   time.Duration
		closes bool // the Guard, at once
		result idempotency.Result
		took   time.Duration
		retry  time.Duration
	}{
		"no wait":           {result: idempotency.InFlight, retry: time.Second},
		"a long pause":      {opts: []idempotency.Option{idempotency.WithRetryAfter(time.Hour)}, result: idempotency.InFlight, retry: time.Minute},
		"a short wait":      {opts: wait(500 * time.Millisecond), result: idempotency.InFlight, took: 500 * time.Millisecond, retry: time.Second},
		"a wait":            {opts: wait(time.Minute), result: idempotency.Replayed, took: time.Second},
		"a failure":         {opts: wait(time.Minute), first: errHandler, result: idempotency.Ran, took: time.Second},
		"reject":            {opts: append(wait(time.Minute), idempotency.WithMode(idempotency.Reject)), result: idempotency.Done, took: time.Second, retry: 24 * time.Hour},
		"exclusive":         {opts: append(wait(time.Minute), idempotency.WithMode(idempotency.Exclusive)), result: idempotency.Ran, took: time.Second},
		"its deadline":      {opts: wait(time.Minute), ends: 300 * time.Millisecond, result: idempotency.Canceled, took: 300 * time.Millisecond, retry: time.Second},
		"the Guard is shut": {opts: wait(time.Minute), closes: true, result: idempotency.Unavailable, retry: time.Second},
		"shadow":            {opts: append(wait(time.Minute), idempotency.WithShadow()), result: idempotency.InFlight, retry: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, newStore(), c.opts...)
				first := s.start(t.Context(), request{handler: func(context.Context) (string, error) {
					time.Sleep(time.Second)
					return "answer", c.first
				}})
				synctest.Wait()
				ctx := t.Context()
				if c.ends > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, c.ends)
					defer cancel()
				}
				start := time.Now()
				second := s.start(ctx, request{})
				synctest.Wait()
				if c.closes {
					go func() { _ = s.guard.Close(context.Background()) }()
				}
				got := <-second
				require.Equal(t, c.result, got.Result)
				require.Equal(t, c.took, time.Since(start))
				require.LessOrEqual(t, got.RetryAfter, c.retry)
				require.Greater(t, got.RetryAfter, c.retry-3*time.Second)
				if got.Err != nil {
					require.False(t, guard.Ran(got.Err))
				}
				require.Equal(t, idempotency.Ran, (<-first).Result)
			})
		})
	}
}

// The record of a call that had to wait is forgotten like any other.
func TestLead_aCallThatWaitedLeavesARecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, newStore(), idempotency.WithWait(time.Minute), idempotency.WithOnce(time.Hour))
		end := make(chan struct{})
		first := s.start(t.Context(), request{handler: func(context.Context) (string, error) {
			<-end
			return "failure", errHandler
		}})
		synctest.Wait()
		second := s.start(t.Context(), request{})
		synctest.Wait()
		close(end)
		require.Equal(t, idempotency.Ran, (<-first).Result)
		require.Equal(t, idempotency.Ran, (<-second).Result)
		time.Sleep(59 * time.Minute)
		require.Equal(t, idempotency.Replayed, s.send(t.Context(), request{}).Result)
		time.Sleep(2 * time.Minute)
		require.Equal(t, idempotency.Ran, s.send(t.Context(), request{}).Result)
	})
}

// The store has the record, but its reply to that is lost: the Guard writes the record again, and a
// retry gets the first answer.
func TestLead_aLostReplyToTheRecordCostsNoSecondRun(t *testing.T) {
	t.Parallel()
	for lost := range 3 {
		synctest.Test(t, func(t *testing.T) {
			store := &guardtest.Scripted{Inner: newStore()}
			releases := 0
			store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
				held, err := store.Inner.Release(ctx, c, after)
				if releases = n; n <= lost {
					return false, guardtest.Fail(driver.KindTimeout)
				}
				return held, err
			}
			s := newSite(t, store)
			require.Equal(t, idempotency.KeepAnswer, s.send(t.Context(), request{key: "k"}).Kept)
			require.Equal(t, lost+1, releases)
			require.Equal(t, idempotency.Replayed, s.send(t.Context(), request{key: "k"}).Result)
			require.Equal(t, 1, s.runs)
		})
	}
}

// Places for waiters: how many calls of one scope are let in, and that others still are.
func TestLead_waitersAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts       []idempotency.Option
		keys, each int // of the greedy scope, beside those that run
		wait       int
	}{
		"by default":      {nil, 4, 256, 256},
		"of a key":        {[]idempotency.Option{idempotency.WithMaxWaiters(100, 2)}, 1, 5, 2},
		"small bounds":    {[]idempotency.Option{idempotency.WithMaxWaiters(8, 2)}, 4, 2, 2},
		"one of each key": {[]idempotency.Option{idempotency.WithMaxWaiters(16, 1)}, 16, 1, 4},
		"set":             {[]idempotency.Option{idempotency.WithMaxWaiters(8, 2), idempotency.WithMaxScopeWaiters(7)}, 4, 2, 7},
		"less than a key": {[]idempotency.Option{idempotency.WithMaxScopeWaiters(1)}, 2, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, newStore(), append([]idempotency.Option{idempotency.WithWait(time.Minute)}, c.opts...)...)
				end := make(chan struct{})
				var calls []<-chan *call
				send := func(scope, key string, n int) (refused int) {
					for range n {
						calls = append(calls, s.start(t.Context(), request{scope: scope, key: key, handler: until(end)}))
					}
					synctest.Wait()
					for _, ended := range calls {
						refused += len(ended)
					}
					return refused
				}
				for round := range 2 { // places are released
					end, calls = make(chan struct{}), nil
					refused := 0
					for key := range c.keys {
						refused = send("greedy", strings.Repeat("k", key+1)+strings.Repeat("r", round), 1+c.each)
					}
					require.Equal(t, c.keys*c.each-c.wait, refused, "calls of the greedy scope")
					require.Equal(t, refused, send("other", strings.Repeat("r", round), 2), "one runs, and its duplicate waits")
					close(end)
					for _, ended := range calls {
						<-ended
					}
				}
			})
		})
	}
}

// What ends the handler's context, what the handler sees, and what is kept of its run.
func TestLead_theEndOfARun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts   []idempotency.Option
		leaves bool // the caller, after a second
		closes bool // the Guard, after a second
		loses  bool // the lease, at the first renewal
		polls  bool // the handler looks at the error of its context only, now and then
		ends   time.Duration
		cause  error
		kept   idempotency.Keep
		err    error // of the outcome
	}{
		"the caller leaves":  {leaves: true, ends: 10 * time.Second, kept: idempotency.KeepAnswer},
		"the caller cancels": {opts: []idempotency.Option{idempotency.WithClientCancel()}, leaves: true, ends: time.Second, cause: context.Canceled},
		"too long":           {opts: []idempotency.Option{idempotency.WithMaxHold(3 * time.Second)}, ends: 3 * time.Second, cause: context.DeadlineExceeded, kept: idempotency.KeepAnswer},
		"too long, it polls": {opts: []idempotency.Option{idempotency.WithMaxHold(3 * time.Second)}, leaves: true, polls: true, ends: 4 * time.Second, cause: context.DeadlineExceeded, kept: idempotency.KeepAnswer},
		"the Guard is shut":  {closes: true, ends: time.Second, cause: guard.ErrClosed, err: guard.ErrClosed},
		"the lease is lost":  {opts: []idempotency.Option{idempotency.WithLease(guard.WithTTL(6 * time.Second))}, loses: true, ends: 2 * time.Second, cause: guard.ErrLost, err: guard.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &guardtest.Scripted{Inner: newStore()}
				if c.loses {
					store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
				}
				s := newSite(t, store, c.opts...)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var took time.Duration
				var cause error
				start := time.Now()
				ended := s.start(ctx, request{handler: func(ctx context.Context) (string, error) {
					for c.polls && ctx.Err() == nil {
						time.Sleep(2 * time.Second)
					}
					select {
					case <-ctx.Done():
					case <-time.After(10 * time.Second):
					}
					took, cause = time.Since(start), context.Cause(ctx)
					return "answer", nil
				}})
				time.Sleep(time.Second)
				if c.leaves {
					leave()
				}
				if c.closes {
					over, cancel := context.WithCancel(context.Background())
					cancel()
					_ = s.guard.Close(over)
				}
				got := <-ended
				require.Equal(t, idempotency.Ran, got.Result)
				if c.loses { // a renewal comes a little earlier, by chance
					took = took.Round(c.ends)
				}
				require.Equal(t, c.ends, took)
				require.ErrorIs(t, cause, c.cause)
				require.Equal(t, c.kept, got.Kept)
				require.ErrorIs(t, got.Err, c.err)
			})
		})
	}
}

// A closed Guard refuses each call. That is no failure of the store: nothing runs without a lease.
func TestLead_aClosedGuardRefuses(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]idempotency.Option{"": nil, "fail open": {idempotency.WithFailOpen()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, newStore(), opts...)
				require.NoError(t, s.guard.Close(t.Context()))
				got := s.send(t.Context(), request{key: "k"})
				require.Equal(t, idempotency.Unavailable, got.Result)
				require.ErrorIs(t, got.Err, guard.ErrClosed)
				require.Zero(t, s.runs)
			})
		})
	}
}
