package driver_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An async is a Locker whose Start the test provides.
type async struct {
	driver.Wrapper
	start func(claims []driver.Claim, done func(i int, a driver.Answer, err error))
}

func (a async) Start(
	_ context.Context, _ driver.Op, claims []driver.Claim, _ driver.After, done func(i int, a driver.Answer, err error),
) {
	a.start(claims, done)
}

// await renews two claims, and returns the answers to them.
func await(t *testing.T, ctx context.Context, start func(claims []driver.Claim, done func(i int, a driver.Answer, err error))) []error {
	t.Helper()
	errs := make([]error, 2)
	var mu sync.Mutex
	answers, returned := 0, false
	l := async{driver.Wrapper{Locker: memory.New()}, start}
	driver.Await(ctx, l, driver.OpRenew, []driver.Claim{{Key: "a"}, {Key: "b"}}, driver.After{}, func(i int, _ driver.Answer, err error) {
		mu.Lock()
		defer mu.Unlock()
		require.False(t, returned)
		errs[i] = err
		answers++
	})
	mu.Lock()
	defer mu.Unlock()
	returned = true
	require.Equal(t, 2, answers)
	return errs
}

func TestAwait_waitsForTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		errs := await(t, t.Context(), func(claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
			for i := range claims {
				time.AfterFunc(time.Duration(i)*time.Second, func() {
					done(i, driver.Answer{Held: true}, nil)
					done(i, driver.Answer{}, driver.ErrStore)
				})
			}
		})
		require.Equal(t, []error{nil, nil}, errs)
		require.Equal(t, time.Second, time.Since(start))
	})
}

func TestAwait_endsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		errs := await(t, ctx, func(_ []driver.Claim, done func(i int, a driver.Answer, err error)) {
			done(1, driver.Answer{Held: true}, nil)
			time.AfterFunc(time.Minute, func() { done(0, driver.Answer{Held: true}, nil) })
		})
		require.NoError(t, errs[1])
		var failed *driver.StoreError
		require.ErrorAs(t, errs[0], &failed)
		require.Equal(t, []any{"memory", driver.OpRenew, "a", driver.KindTimeout}, []any{failed.Backend, failed.Op, failed.Key, failed.Kind})
		time.Sleep(time.Hour)
	})
}

func TestAwait_answersForALockerThatDoesNotReturn(t *testing.T) {
	for says, fault := range map[string]func(){"it panicked: boom": func() { panic("boom") }, "ended its goroutine": runtime.Goexit} {
		ended := make(chan struct{})
		var errs [2]error
		go func() { // Goexit ends this goroutine
			defer close(ended)
			l := async{driver.Wrapper{Locker: memory.New()}, func(_ []driver.Claim, done func(i int, a driver.Answer, err error)) {
				done(1, driver.Answer{Held: true}, nil)
				fault()
			}}
			driver.Await(t.Context(), l, driver.OpRenew, []driver.Claim{{Key: "a"}, {Key: "b"}}, driver.After{}, func(i int, _ driver.Answer, err error) {
				errs[i] = err
			})
		}()
		<-ended
		require.ErrorContains(t, errs[0], says)
		require.NoError(t, errs[1])
	}
}

// A panicking Locker panics in all calls.
type panicking struct{ driver.Locker }

func (panicking) Renew(context.Context, driver.Claim) (bool, error) { panic("boom") }

func TestEach_makesAnErrorOfAPanic(t *testing.T) {
	driver.Await(t.Context(), panicking{}, driver.OpRenew, []driver.Claim{{Key: "a"}}, driver.After{}, func(_ int, _ driver.Answer, err error) {
		require.ErrorContains(t, err, "it panicked: boom")
	})
}

func TestAwait_ofNoClaimsReturns(t *testing.T) {
	driver.Await(t.Context(), memory.New(), driver.OpAcquire, nil, driver.After{}, func(int, driver.Answer, error) { require.Fail(t, "an answer") })
}
