package faults_test

import (
	"time"

	"github.com/stretchr/testify/require"
)

// Faults of the workers' own processes.
var processRows = []row{
	{number: 1, name: "worker killed while holding", backends: everyone, ci: everyone, beliefs: 10, run: killedHolder},
	{number: 2, name: "worker paused past its TTL between check and write", backends: everyone, ci: everyone, run: pausedHolder,
		shows: map[string]string{"": `^onerun.lease.losses\{onerun.loss.reason=(expired|not_held)`}},
	{number: 3, name: "worker paused while its grant is on the way", backends: everyone, ci: []string{"reentrant"}, run: pausedClaimant,
		shows: map[string]string{"": `^onerun.acquire.duration\{error.type=(timeout|quorum)`}},
	{number: 4, name: "worker starved of CPU", backends: everyone, beliefs: 10, run: starvedWorker},
}

func killedHolder(s *scene) {
	first := s.loop(2)[0]
	dying := s.worker()
	dying.ask("hold c")
	dying.ask("write c")
	s.keys["c"] = true
	first.Tell("take c") // waits
	s.pass(ttl)          // in which it is renewed
	dying.Kill()
	s.proven(true, "worker %d was killed with SIGKILL", dying.PID())
	first.reply()
}

func pausedHolder(s *scene) {
	paused, next := s.worker(), s.worker()
	s.keys["c"] = true
	stale := paused.fence("hold c")
	require.Equal(s.t, "true", paused.ask("write c"))
	require.Equal(s.t, "true", paused.ask("valid c"), "the check")
	require.NoError(s.t, paused.Freeze())
	begun := time.Now()
	fence := next.fence("hold c 10s")
	require.Greater(s.t, fence, stale)
	require.Equal(s.t, "true", next.ask("read c"), "which is enough to refuse the paused one")
	s.proven(time.Since(begun) > ttl/3, "it stood still for %v", time.Since(begun).Round(time.Millisecond))
	paused.Tell("write c")
	paused.Tell("valid c")
	require.NoError(s.t, paused.Thaw())
	require.Equal(s.t, "false", paused.reply(), "the write is refused")
	require.Equal(s.t, "false", paused.reply(), "and Valid says so")
	require.Contains(s.t, []string{"expired", "not_held"}, paused.ask("lost c 5s"))
	said, ok := paused.try("release c")
	require.False(s.t, ok, "the release of what was lost says so")
	require.Contains(s.t, said, "lost")
	refused, granted := paused.try("hold c")
	require.False(s.t, granted, "the release has freed the key of the next: %s", refused)
	require.Equal(s.t, "true", next.ask("valid c"), "the lease of the next was not touched")
	require.Equal(s.t, "true", next.ask("write c"))
	next.ask("release c")
}

func pausedClaimant(s *scene) {
	paused, next := s.worker(), s.worker()
	s.keys["c"] = true
	paused.ask("take c") // it knows its servers, and they the scripts
	next.ask("take c")
	for _, p := range paused.proxies {
		p.HoldReplyTo("evalsha")
	}
	for _, server := range s.deployment.servers {
		server.ResetStats(s.t)
	}
	paused.Tell("hold c")
	arrived := func() bool {
		for _, server := range s.deployment.servers {
			if server.Calls(s.t)["evalsha"] == 0 {
				return false
			}
		}
		return true
	}
	require.Eventually(s.t, arrived, 5*time.Second, time.Millisecond)
	require.NoError(s.t, paused.Freeze())
	s.proven(true, "the claim had reached all servers, and its answers were held")
	next.ask("hold c 10s")
	require.Equal(s.t, "true", next.ask("write c"))
	for _, p := range paused.proxies {
		p.Restore()
	}
	require.NoError(s.t, paused.Thaw())
	said, granted := paused.receive()
	require.False(s.t, granted, "a grant that came too late was used: %s", said)
	require.Equal(s.t, "true", next.ask("valid c"))
	require.Equal(s.t, "true", next.ask("write c"))
	next.ask("release c")
}

func starvedWorker(s *scene) {
	s.loop(1)
	starved := s.worker(func(do *task) { do.Procs = 1 })
	starved.ask("take a")
	starved.ask("spin 8")
	starved.ask("loop 2 a,b")
	s.pass(5 * ttl)
	s.proven(true, "8 goroutines spun on its one CPU for %v", 5*ttl)
}
