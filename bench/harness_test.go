package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A sleeper is a locker that grants a number of calls, even if the key is held. Then it sleeps
// until the caller's context ends, like a locker that misses a release. After that it grants wakes
// more calls.
type sleeper struct {
	left  atomic.Int64
	wakes int64
}

func (s *sleeper) take(ctx context.Context, _ string) (lease, error) {
	if s.left.Add(-1) >= 0 {
		return nil, nil
	}
	<-ctx.Done()
	s.left.Store(s.wakes)
	return nil, ctx.Err()
}

func (s *sleeper) give(context.Context, string, lease) error { return nil }
func (s *sleeper) ping(context.Context) error                { return nil }
func (s *sleeper) close()                                    {}

func sleepsAfter(n, wakes int64) *sleeper {
	s := &sleeper{wakes: wakes}
	s.left.Store(n)
	return s
}

func TestContest_endsWhenEverybodySleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newContest([]locker{sleepsAfter(7, 0), sleepsAfter(2, 0)}, 3, "k", 100)
		c.run()
		done, minShare, _ := fairness(c.shares)
		require.Equal(t, 9, done)
		require.InDelta(t, 2.0/4.5, minShare, 1e-9)
		require.Less(t, time.Since(start), 2*stalled)
		require.Zero(t, c.failures.Load(), "the end of the contest is nobody's failure")
	})
}

func TestContest_endsWhenAllPairsAreDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		c := newContest([]locker{sleepsAfter(1000, 0)}, 3, "k", 100)
		c.run()
		done, _, _ := fairness(c.shares)
		require.Equal(t, 100, done)
		require.Zero(t, time.Since(start))
	})
}

func TestContest_seesASecondHolder(t *testing.T) {
	c := newContest([]locker{sleepsAfter(1, 0)}, 1, "k", 1)
	c.hold()
	require.Zero(t, c.doubles.Load())
	c.inside.Store(true) // a holder
	c.hold()
	require.EqualValues(t, 1, c.doubles.Load())
	require.Empty(t, c.gaps, "and it writes nothing")
}

func TestTakeFor_asksAgainWhereALockerSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := takeFor(sleepsAfter(0, 1), "k")
		require.NoError(t, err)
		_, err = takeFor(sleepsAfter(0, 0), "k")
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestFairness_isThatOfTheProcessWithLeast(t *testing.T) {
	done, minShare, served := fairness([][]int{{10, 0}, {1, 1}})
	require.Equal(t, 12, done)
	require.InDelta(t, 2.0/6, minShare, 1e-9)
	require.InDelta(t, 0.75, served, 1e-9)
	done, minShare, _ = fairness([][]int{{0}, {0}})
	require.Zero(t, done)
	require.Zero(t, minShare)
}

func TestPercentiles_areOfTheSortedSpans(t *testing.T) {
	var spans []time.Duration
	for n := range 100 {
		spans = append(spans, time.Duration(99-n))
	}
	p50, p99 := percentiles(spans)
	require.EqualValues(t, 50, p50)
	require.EqualValues(t, 98, p99)
	p50, p99 = percentiles(nil)
	require.Zero(t, p50+p99)
	p50, p99 = percentiles([]time.Duration{7})
	require.EqualValues(t, 14, p50+p99)
}
