package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

type ctxKey struct{}

func TestCallContext_endsWhenAllNodesHaveAnsweredOrAtItsDeadline(t *testing.T) {
	for _, watched := range []bool{false, true} { // whether a node asks for the Done channel early
		synctest.Test(t, func(t *testing.T) {
			values := context.WithValue(t.Context(), ctxKey{}, "v")
			caller, cancel := context.WithTimeout(values, time.Minute)
			begin := func(longest time.Duration) *callContext {
				c := &callContext{}
				c.begin(caller, longest, 2)
				if watched {
					_ = c.Done()
				}
				return c
			}
			answered, late, callers := begin(time.Second), begin(time.Second), begin(time.Hour)
			cancel()
			deadline, ok := callers.Deadline()
			require.True(t, ok)
			require.Equal(t, time.Minute, time.Until(deadline), "the caller's, if that is sooner")
			deadline, _ = late.Deadline()
			require.Equal(t, time.Second, time.Until(deadline))
			require.Equal(t, "v", late.Value(ctxKey{}))
			require.NoError(t, late.Err(), "the caller's leaving does not end it")
			require.NoError(t, context.Cause(late))

			answered.answered()
			require.NoError(t, answered.Err())
			answered.answered()
			require.ErrorIs(t, answered.Err(), context.Canceled)
			<-answered.Done()
			require.ErrorIs(t, answered.Err(), context.Canceled)

			if !watched {
				time.Sleep(time.Second)
				require.ErrorIs(t, late.Err(), context.DeadlineExceeded)
			}
			child, stop := context.WithCancel(late)
			defer stop()
			<-late.Done()
			require.ErrorIs(t, late.Err(), context.DeadlineExceeded)
			<-child.Done()
			callers.answered()
			callers.answered()
		})
	}
}
