package guard_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// callers are calls for one key that start one after the other.
type callers struct {
	t   *testing.T
	g   *guard.Guard
	all sync.WaitGroup

	mu     sync.Mutex
	order  []int    // the numbers of the calls, in the order in which they ran
	fences []uint64 // the fences of the runs
	ended  map[int]end

	failing map[int]error // the errors that calls that have run should return
}

// errPanicked stands for the error of a call that panicked or ended its goroutine.
var errPanicked = errors.New("it panicked, or ended its goroutine")

// An end is when a call returned, and its error.
type end struct {
	at  time.Time
	err error
}

func newCallers(t *testing.T, g *guard.Guard) *callers {
	return &callers{t: t, g: g, ended: map[int]end{}, failing: map[int]error{}}
}

// fail makes requireOrder expect an error from a call whose function runs.
func (c *callers) fail(number int, err error) { c.failing[number] = err }

// start starts a call whose function takes the given time. It returns when the call blocks or has
// ended.
func (c *callers) start(ctx context.Context, takes time.Duration, opts ...guard.Option) (number int) {
	return c.startFunc(ctx, sleeping(takes), opts...)
}

func (c *callers) startFunc(ctx context.Context, f func(context.Context) error, opts ...guard.Option) (number int) {
	c.mu.Lock()
	number = len(c.ended)
	c.ended[number] = end{}
	c.mu.Unlock()
	c.all.Go(func() {
		err := errPanicked
		defer func() {
			_ = recover()
			c.mu.Lock()
			defer c.mu.Unlock()
			c.ended[number] = end{time.Now(), err}
		}()
		err = c.g.Do(ctx, "k", func(ctx context.Context) error {
			c.mu.Lock()
			c.order = append(c.order, number)
			c.fences = append(c.fences, guard.Fence(ctx))
			c.mu.Unlock()
			return f(ctx)
		}, append([]guard.Option{guard.WithWait(time.Minute)}, opts...)...)
		var done *guard.DoneError
		if errors.As(err, &done) && len(done.Record) > 0 {
			if string(done.Record) != "42" {
				c.t.Errorf("the record is %q", done.Record)
			}
			done.Record[0]++ // each call has its own copy
		}
	})
	synctest.Wait()
	return number
}

// ran returns the numbers of the calls that have run so far.
func (c *callers) ran() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]int(nil), c.order...)
}

// fence returns the fence of the n-th run.
func (c *callers) fence(n int) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fences[n]
}

// end returns how the call ended.
func (c *callers) end(number int) end {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended[number]
}

// requireOrder waits for all calls and checks their results. The calls with these numbers must
// have run, in this order and with growing fences. Each must have returned the error that fail
// set, or nil. All other calls must have returned an error.
func (c *callers) requireOrder(order ...int) {
	c.t.Helper()
	c.all.Wait()
	require.Equal(c.t, append([]int(nil), order...), c.ran())
	for number, end := range c.ended {
		if slices.Contains(order, number) {
			require.ErrorIs(c.t, end.err, c.failing[number], number)
		} else {
			require.Error(c.t, end.err, number)
		}
	}
	for i := 1; i < len(c.fences); i++ {
		require.Greater(c.t, c.fences[i], c.fences[i-1])
	}
}
