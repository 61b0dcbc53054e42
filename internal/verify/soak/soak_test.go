package soak_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// What make soak says: for how long there are faults, in all, and by what seed.
const (
	durationEnv = "ONERUN_SOAK"
	seedEnv     = "ONERUN_SOAK_SEED"
)

func TestSoak(t *testing.T) {
	backends, faulty, seed := []string{"single"}, 20*time.Second, uint64(1)
	if text := os.Getenv(durationEnv); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		backends = []string{"single", "reentrant", "redlock"}
		faulty = d / time.Duration(len(backends))
		seed, err = strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
		require.NoError(t, err)
	}
	for _, backend := range backends {
		t.Run(fmt.Sprintf("%s, seed %d", backend, seed), func(t *testing.T) { soak(t, backend, seed, faulty) })
	}
}

func soak(t *testing.T, backend string, seed uint64, faulty time.Duration) {
	t.Helper()
	s := newSite(t, backend)
	start := time.Now()
	d := newDemand(s)
	came := s.befall(seed, faulty)

	d.rest()
	s.each(func(c *child) { c.Tell("rest") })
	s.each(func(c *child) { c.Says("rests") })
	quiet := time.Now()
	time.Sleep(3 * ttl) // what was held by those that were killed is free by then
	s.each(func(c *child) { c.Tell("each key") })
	s.each(func(c *child) { c.Says("has had each key") })
	d.requireMet(t)
	s.requireTicks(quiet)
	ticks := s.requireEachTick(start, quiet)
	s.each(func(c *child) { c.Tell("end") })
	s.each(func(c *child) { c.Says("ended") })
	s.requireNothingHeld()
	s.resource.Tell("end")
	s.resource.Says("ended")

	v := judge(s.events(), s.losses)
	v.asked(d.asked)
	t.Logf("faults: %v\n%v\n%d requests and tasks were asked for, by %d tries of which %d were sent away\n%d ticks ran, %d were reported",
		came, v, len(d.asked), d.tries, d.refused, ticks.ran, ticks.reported)
	require.Empty(t, v.wrong)
	require.Positive(t, v.beliefs)
}

// requireTicks waits until somebody has run each job for each of the first ticks after an instant.
// That nobody does so again is for judge.
func (s *site) requireTicks(after time.Time) {
	for name := range cronJobs {
		for second := after.Unix() + 2; second < after.Unix()+4; second++ {
			require.Eventually(s.t, func() bool {
				return slices.ContainsFunc(s.now, func(c *child) bool { return c.hasSaid("did " + tickName(name, second)) })
			}, soon, 20*time.Millisecond, "nobody has run %s", tickName(name, second))
		}
	}
}

// requireNothingHeld fails unless each key can be had at once.
func (s *site) requireNothingHeld() {
	var lockers []guard.Locker
	for _, rdb := range s.admins {
		if s.backend == "reentrant" {
			lockers = append(lockers, reentrant.New(rdb))
		} else {
			lockers = append(lockers, single.New(rdb))
		}
	}
	store := lockers[0]
	if len(lockers) > 1 {
		store = redlock.New(lockers)
	}
	g, err := guard.New(store)
	require.NoError(s.t, err)
	for _, key := range append([]string{"cron:short", "cron:long"}, plainKeys...) {
		lease, err := g.Acquire(s.t.Context(), key)
		require.NoError(s.t, err, "a key that is stuck")
		require.NoError(s.t, lease.Release(s.t.Context()))
	}
	require.NoError(s.t, g.Close(s.t.Context()))
}
