package redisstore

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCrowdWaiter_notifiesOnceForEachRelease(t *testing.T) {
	const few, many, soon = "5", "1000000000", time.Millisecond // of many, it is never first
	type message struct {
		after time.Duration
		text  string
	}
	for name, c := range map[string]struct {
		messages []message
		want     []time.Duration // when; with a pause if negative
	}{
		"few wait":                    {[]message{{0, ""}, {soon, "0"}, {soon, "0"}}, []time.Duration{0, soon, 2 * soon}},
		"many wait":                   {[]message{{0, "0"}, {0, many}, {soon, "0"}, {0, many}, {soon, "0"}, {0, many}}, []time.Duration{0, -soon, -2 * soon}},
		"few wait after many":         {[]message{{0, "0"}, {0, many}, {soon, "0"}, {0, "3"}, {soon, "0"}}, []time.Duration{0, soon, 2 * soon}},
		"two wait after many":         {[]message{{0, "0"}, {0, many}, {soon, "0"}, {10 * soon, "0"}}, []time.Duration{0, soon + crowdAnswer, 11 * soon}},
		"all are to ask":              {[]message{{0, "0"}, {0, many}, {soon, "1"}, {soon, "0"}, {0, "1"}}, []time.Duration{0, soon, 2 * soon}},
		"plain and sharded":           {[]message{{0, "0"}, {0, "0"}, {0, many}, {0, many}, {soon, "0"}, {0, "0"}, {0, many}, {0, many}}, []time.Duration{0, 0, -soon}},
		"another program's":           {[]message{{0, "x"}, {soon, "-1"}, {0, "0"}}, []time.Duration{0, soon, soon}},
		"the subscription is renewed": {[]message{{0, "0"}, {0, few}, {soon, "0"}, {0, ""}}, []time.Duration{0, soon}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var got []time.Duration
				var mu sync.Mutex
				w := &crowdWaiter{}
				w.notify = func(in time.Duration) {
					mu.Lock()
					defer mu.Unlock()
					at := time.Since(start)
					if in > 0 {
						at = -at
					}
					got = append(got, at)
				}
				for _, m := range c.messages {
					time.Sleep(m.after)
					w.receive(m.text)
				}
				time.Sleep(time.Minute)
				mu.Lock()
				defer mu.Unlock()
				require.Equal(t, c.want, got)
			})
		})
	}
}

func TestCrowdWaiter_notifiesNobodyAfterItHasStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		w := &crowdWaiter{notify: func(time.Duration) { calls++ }}
		w.receive("0")
		w.receive("9")
		w.receive("0")
		w.stop()
		time.Sleep(time.Minute)
		require.Equal(t, 1, calls)
	})
}

// The number of requests after a release hardly depends on how many wait, and hardly on how long
// the next run takes.
func TestCrowdPause_hasFewAskAtOnceAndMoreLater(t *testing.T) {
	const releases = 300
	for _, c := range []struct{ waiters, missed int }{{5, 3}, {64, 32}, {1000, 500}} {
		waiters := c.waiters
		atOnce, soon, first := 0, 0, time.Duration(0)
		for range releases {
			least := time.Hour
			for range waiters {
				pause := crowdPause(waiters, c.missed)
				least = min(least, pause)
				if pause == 0 {
					atOnce++
				}
				if pause < 50*time.Millisecond {
					soon++
				}
			}
			first = max(first, least)
		}
		require.InDelta(t, crowd, float64(atOnce)/releases, 1)
		require.LessOrEqual(t, float64(soon)/releases, 12.)
		require.Less(t, first, time.Second, "somebody asks soon after each release")
	}
}

// A waiter that is the only one that still wants the key asked after hours.
func TestCrowdPause_isBounded(t *testing.T) {
	const waiters, releases = 50, 10_000
	longest := time.Duration(0)
	for range releases {
		longest = max(longest, crowdPause(waiters, 1))
	}
	require.Less(t, longest, 2*waiters*crowdEach)
}

// A waiter that has waited for long was not more likely to be the next.
func TestCrowdPause_hasThoseAskThatHaveSeenManyReleases(t *testing.T) {
	atOnce := map[int]int{}
	for range 10_000 {
		for _, missed := range []int{1, 100, 250} {
			if crowdPause(100, missed) == 0 {
				atOnce[missed]++
			}
		}
	}
	require.Greater(t, atOnce[100], 2*atOnce[1])
	require.Greater(t, atOnce[250], atOnce[100]*3/2)
}

func TestCrowdWaiter_remembersThatManyHaveWaited(t *testing.T) {
	w := &crowdWaiter{notify: func(time.Duration) {}}
	w.receive("0")
	require.False(t, w.stop())
	w.receive("1000")
	require.True(t, w.stop())
	w.receive("0")
	require.True(t, w.stop(), "its number has not come")
	w.receive("0")
	w.receive("3")
	require.False(t, w.stop())
}
