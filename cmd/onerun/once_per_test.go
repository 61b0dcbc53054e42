package main_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The marker of --once-per counts from the start of the run, so a run that takes a while does not
// keep out the next one of a schedule.
func TestRun_oncePerCountsFromTheStart(t *testing.T) {
	s := newSite(t)
	began := time.Now()
	require.Zero(t, first(s.run("run", "--once-per=24h", "k", "--", "sleep", "3")))
	left := s.client.PTTL(t.Context(), s.leaseName()).Val()
	require.Less(t, left, 24*time.Hour*9/10-2900*time.Millisecond)
	require.Greater(t, left, 24*time.Hour*9/10-time.Since(began)-time.Second)
	code, _, errs := s.run("run", "--once-per=24h", "--done-exit=9", "k", "--", "echo", "ran")
	require.Equal(t, 9, code)
	require.Contains(t, errs, "it can run again in 21h3")
	code, _, errs = s.run("run", "--once-per=24h", "failing", "--", "false")
	require.Equal(t, 1, code, errs)
	require.Zero(t, first(s.run("run", "--once-per=24h", "failing", "--", "true")), "a failed run leaves no marker")
}

// leaseName returns the name of the only lease or marker of the server.
func (s *site) leaseName() string {
	s.t.Helper()
	keys := s.client.Keys(s.t.Context(), "*lease*").Val()
	require.Len(s.t, keys, 1, strings.Join(keys, " "))
	return keys[0]
}

func TestRun_oncePerRefusals(t *testing.T) {
	s := newSite(t)
	for want, args := range map[string][]string{
		"--once and --once-per can't be used together":                                {"--once=1h", "--once-per=1h"},
		"--once-per: -1h0m0s":                                                         {"--once-per=-1h"},
		"--once-per: 54m0s must be 0 for a key that several hold (--shared, --limit)": {"--once-per=1h", "--shared"},
	} {
		code, _, errs := s.run(append(append([]string{"run"}, args...), "k", "--", "true")...)
		require.NotZero(t, code)
		require.Contains(t, errs, want)
	}
}
