package guard_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// How a term can end, and what follows.
func TestCandidate_exits(t *testing.T) {
	t.Parallel()
	// soon is the longest pause of a waiter on a store that does not notify.
	const soon = 250 * time.Millisecond
	end := make(chan error, 1) // what the function returns
	await := func() error { return <-end }
	returns := func(err error) func(*election) { return func(*election) { end <- err } }
	for name, row := range map[string]struct {
		turn   func(ctx context.Context) error // of a's first term
		act    func(e *election)               // ends it
		within time.Duration                   // b leads
		cause  error                           // of the context of that term, or nil
		over   func(t *testing.T, got any)     // what Run of a returns; nil if it campaigns again
	}{
		"returns nil":   {act: returns(nil), within: soon},
		"returns error": {act: returns(errWork), within: soon},
		"stops":         {act: returns(guard.ErrStopLeading), within: soon, over: func(t *testing.T, got any) { require.Nil(t, got) }},
		"stops with an error": {act: returns(fmt.Errorf("%w: %w", guard.ErrStopLeading, errWork)), within: soon, over: func(t *testing.T, got any) {
			require.ErrorIs(t, got.(error), errWork)
			require.ErrorIs(t, got.(error), guard.ErrStopLeading)
		}},
		"panics": {turn: func(context.Context) error { _ = await(); panic("boom") }, act: returns(nil), within: soon, over: func(t *testing.T, got any) {
			require.Equal(t, "boom", got)
		}},
		"ends its goroutine": {turn: func(context.Context) error { _ = await(); runtime.Goexit(); return nil }, act: returns(nil), within: soon, over: func(t *testing.T, got any) {
			require.EqualError(t, got.(error), "goexit")
		}},
		"context ends": {act: func(e *election) { e.a.cancel() }, within: soon, cause: context.Canceled, over: func(t *testing.T, got any) {
			require.ErrorIs(t, got.(error), context.Canceled)
			require.True(t, guard.Ran(got.(error)))
			require.EqualError(t, got.(error), `guard: lead "leader": context canceled`)
		}},
		"context ends, and the function fails": {
			turn: func(ctx context.Context) error { <-ctx.Done(); return errWork },
			act:  func(e *election) { e.a.cancel() }, within: soon, over: func(t *testing.T, got any) {
				require.ErrorIs(t, got.(error), context.Canceled)
				require.ErrorIs(t, got.(error), errWork)
			},
		},
		"resigns": {act: func(e *election) { e.a.Resign() }, within: soon, cause: context.Canceled},
		"guard is closed": {act: func(e *election) { require.NoError(e.t, e.a.guard.Close(context.Background())) }, within: soon, cause: guard.ErrClosed, over: func(t *testing.T, got any) {
			require.ErrorIs(t, got.(error), guard.ErrClosed)
			require.True(t, guard.Ran(got.(error)))
		}},
		"store is away from it for 60 s": {act: func(e *election) {
			e.a.away.Store(true)
			time.AfterFunc(time.Minute, func() { e.a.away.Store(false) })
		}, within: ttl + soon, cause: guard.ErrLost},
		"store is away from both for 60 s": {act: func(e *election) {
			e.a.away.Store(true)
			e.b.away.Store(true)
			time.AfterFunc(time.Minute, func() { e.b.away.Store(false) })
			time.AfterFunc(2*time.Minute, func() { e.a.away.Store(false) })
		}, within: time.Minute + time.Second, cause: guard.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			end = make(chan error, 1)
			inElection(t, func(e *election) {
				end = make(chan error, 1)
				turn := row.turn
				if turn == nil {
					turn = func(ctx context.Context) error {
						select {
						case err := <-end:
							return err
						case <-ctx.Done():
							e.a.causes <- context.Cause(ctx)
							return ctx.Err()
						}
					}
				}
				e.a.turn.Store(&turn)
				e.begin()
				row.act(e)
				e.b.leads(row.within)
				if row.cause != nil {
					cause := <-e.a.causes
					if row.cause != context.Canceled { //nolint:errorlint // it is the table's
						require.ErrorIs(t, cause, row.cause)
					}
				}
				if row.over != nil {
					row.over(t, <-e.a.ended)
					return
				}
				time.Sleep(3 * time.Minute) // virtual time
				require.Empty(t, e.a.ended)
				require.Empty(t, e.a.began, "b leads")
				e.b.Resign()
				e.a.leads(time.Second)
			})
		})
	}
}

// After an operator has broken the lease, one of them leads when its time has passed.
func TestCandidate_leaseIsBroken(t *testing.T) {
	t.Parallel()
	inElection(t, func(e *election) {
		e.begin()
		l, err := e.b.Leader(e.t.Context())
		require.NoError(t, err)
		broken, err := e.store.Break(e.t.Context(), "leader", l.ID, driver.Break{ID: driver.NewBrokenID(), Label: "by alice"})
		require.NoError(t, err)
		require.True(t, broken)
		require.ErrorIs(t, <-e.a.causes, guard.ErrLost)
		l, err = e.b.Leader(e.t.Context())
		require.NoError(t, err)
		require.Zero(t, l, "the key is kept, and nobody leads")
		time.Sleep(ttl + time.Second) // virtual time
		require.Equal(t, 1, len(e.a.began)+len(e.b.began))
	})
}

// An outage that is shorter than the lease changes nothing.
func TestCandidate_outlastsAShortOutage(t *testing.T) {
	t.Parallel()
	inElection(t, func(e *election) {
		e.begin()
		for range 10 {
			e.a.away.Store(true)
			e.b.away.Store(true)
			time.Sleep(5 * time.Second) // virtual time
			e.a.away.Store(false)
			e.b.away.Store(false)
			time.Sleep(20 * time.Second) // virtual time
		}
		_, ok := e.a.Leading()
		require.True(t, ok)
		require.Empty(t, e.b.began)
		require.Len(t, e.fences, 1)
	})
}

// A function that ignores its context keeps the process from leading again, and is found by Check.
// Until it returns, a lease that is not lost is kept.
func TestCandidate_waitsForItsFunction(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		end   func(e *election)
		other bool // another process leads meanwhile
	}{
		"resigned": {func(e *election) { e.a.Resign() }, false},
		"lost": {func(e *election) {
			e.a.away.Store(true)
			time.Sleep(ttl) // virtual time
			e.a.away.Store(false)
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inElection(t, func(e *election) {
				stuck := make(chan struct{})
				turn := func(context.Context) error {
					<-stuck
					if row.other {
						e.leading.Add(1) // see below
					}
					return context.Canceled
				}
				e.a.turn.Store(&turn)
				e.begin()
				require.NoError(t, e.a.Check())
				if row.other {
					e.leading.Add(-1) // the fence keeps it from its work
				}
				row.end(e)
				_, ok := e.a.Leading()
				require.False(t, ok)
				require.NoError(t, e.a.Check(), "it has a TTL to return")
				time.Sleep(ttl + time.Second) // virtual time
				require.ErrorContains(t, e.a.Check(), "still running")
				time.Sleep(time.Hour) // virtual time
				require.Empty(t, e.a.began, "it does not campaign")
				require.Equal(t, row.other, len(e.b.began) == 1)
				require.NoError(t, e.b.Check())
				close(stuck)
				synctest.Wait()
				require.NoError(t, e.a.Check())
				if !row.other {
					e.b.leads(250 * time.Millisecond)
				}
				time.Sleep(time.Minute) // virtual time
				e.b.Resign()
				e.a.leads(time.Second)
			})
		})
	}
}

// Failures in a row are ever further apart, and others lead meanwhile.
func TestCandidate_pausesAfterFailures(t *testing.T) {
	t.Parallel()
	inElection(t, func(e *election) {
		var fail func(context.Context) error
		var lasts atomic.Int64
		fail = func(context.Context) error {
			e.a.turn.Store(&fail)
			time.Sleep(time.Duration(lasts.Load()))
			return errWork
		}
		e.a.turn.Store(&fail)
		e.a.run()
		last := <-e.a.began
		for i := range 8 {
			began := <-e.a.began
			most := min(2*time.Second<<(i+1), time.Minute)
			require.GreaterOrEqual(t, began.Sub(last), most/2)
			require.LessOrEqual(t, began.Sub(last), most)
			last = began
		}
		synctest.Wait()
		lasts.Store(int64(61 * time.Second))
		last = (<-e.a.began).Add(61 * time.Second)
		require.Less(t, (<-e.a.began).Sub(last), 5*time.Second, "a long term ends the row")
		synctest.Wait()
		e.a.turn.Store(nil)
	})
}

func TestCandidate_runsOnceAtATime(t *testing.T) {
	t.Parallel()
	inElection(t, func(e *election) {
		e.begin()
		require.ErrorContains(t, e.a.Run(e.t.Context()), "must not be called while it is running")
		e.a.Resign()
		e.b.leads(time.Second)
		e.b.cancel()
		require.ErrorIs(t, (<-e.b.ended).(error), context.Canceled)
		e.a.leads(2 * time.Second)
		e.b.run()               // again
		time.Sleep(time.Minute) // virtual time
		e.a.Resign()
		e.b.leads(time.Second)
		require.NoError(t, e.b.guard.Do(e.t.Context(), "other", func(ctx context.Context) error {
			return e.b.guard.Do(ctx, "k", func(ctx context.Context) error {
				err := e.b.guard.Lead(ctx, "k", nothing)
				require.ErrorContains(t, err, `must not hold the key "k" already`)
				return nil
			})
		}))
	})
}
