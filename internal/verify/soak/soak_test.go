package soak_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
)

// What proof soak says: for how long there are faults, in all, and by what seed.
const (
	durationEnv = "ONERUN_SOAK"
	seedEnv     = "ONERUN_SOAK_SEED"
)

func TestSoak(t *testing.T) {
	names, faulty, seed := []string{backends.Single}, 20*time.Second, uint64(1)
	if text := os.Getenv(durationEnv); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		names = []string{backends.Single, backends.Reentrant, backends.Redlock}
		faulty = d / time.Duration(len(names))
		seed, err = strconv.ParseUint(os.Getenv(seedEnv), 10, 64)
		require.NoError(t, err)
	}
	for _, backend := range names {
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
	var clients []redis.UniversalClient
	for _, rdb := range s.admins {
		clients = append(clients, rdb)
	}
	g, err := guard.New(backends.On(s.backend, clients...))
	require.NoError(s.t, err)
	for _, key := range append([]string{"cron:short", "cron:long"}, plainKeys...) {
		lease, err := g.Acquire(s.t.Context(), key)
		require.NoError(s.t, err, "a key that is stuck")
		require.NoError(s.t, lease.Release(s.t.Context()))
	}
	require.NoError(s.t, g.Close(s.t.Context()))
}
