package faults_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
)

// Faults of some of the nodes of a quorum.
var quorumRows = slowRows()

func slowRows() (rows []row) {
	for _, kind := range []struct {
		name          string
		fault, repair func(s *scene, i int)
	}{
		{"down", func(s *scene, i int) { s.deployment.servers[i].Kill() }, func(s *scene, i int) { s.deployment.servers[i].Restart() }},
		{"frozen", func(s *scene, i int) { s.deployment.servers[i].Freeze() }, func(s *scene, i int) { s.deployment.servers[i].Thaw() }},
		{"slow", func(s *scene, i int) { s.delay(i, 5*ttl) }, func(s *scene, i int) { s.delay(i, 0) }},
	} {
		for broken := range 6 {
			shows := ""
			if broken > 0 {
				shows = `^onerun.node.operation.duration\{error.type=`
			}
			var ci []string
			if kind.name == "frozen" && (broken == 2 || broken == 3) {
				ci = quorum
			}
			rows = append(rows, row{
				number: 22, name: fmt.Sprintf("%d of 5 nodes %s", broken, kind.name), backends: quorum, ci: ci,
				forgets: kind.name == "down", shows: map[string]string{"": shows}, run: brokenNodes(broken, kind.fault, kind.repair),
			})
		}
	}
	return append(rows,
		row{number: 23, name: "a minority restarted empty while held", backends: quorum, ci: []string{"redlock"}, forgets: true, run: minorityRestarted,
			shows: map[string]string{"": `^onerun.node.operation.duration\{error.type=lost_not_held.*onerun.operation=renew`}},
		row{number: 23, name: "a majority restarted empty while held", backends: quorum, window: true, forgets: true, run: majorityRestarted, shows: notHeld},
	)
}

// delay makes each worker's path to a server slow.
func (s *scene) delay(server int, d time.Duration) {
	for _, w := range s.workers {
		w.proxies[server].Delay(d)
	}
}

// brokenNodes breaks some of five nodes. With three left, calls succeed as before. With fewer,
// each call is refused in time.
func brokenNodes(broken int, fault, repair func(s *scene, i int)) func(s *scene) {
	return func(s *scene) {
		w, other := s.warm()
		s.keys["held"] = true
		healthy := s.took(w, "take c")
		w.ask("hold held")
		w.ask("write held")
		for i := range broken {
			fault(s, i)
		}
		if broken <= 2 {
			var most time.Duration
			for range 5 {
				most = max(most, s.took(w, "take c"))
			}
			require.Less(s.t, most, max(20*healthy, ttl/2), "acquire takes what a healthy one takes: no time-out of a broken node")
			said, granted := other.try("hold held")
			require.False(s.t, granted, said)
			s.pass(2 * ttl)
			require.Equal(s.t, "true", w.ask("valid held"), "it is renewed")
			w.ask("release held")
			s.proven(true, "%d nodes broken; runs took up to %v, before that %v", broken, most.Round(time.Microsecond), healthy.Round(time.Microsecond))
		} else {
			begun := time.Now()
			said, granted := w.try("hold c")
			took := time.Since(begun)
			require.False(s.t, granted, said)
			require.Contains(s.t, said, "quorum")
			require.Less(s.t, took, 2*ttl, "it is refused in budget")
			require.Equal(s.t, "expired", w.ask("lost held 5s"))
			w.try("release held")
			s.proven(true, "%d nodes broken; refused in %v", broken, took.Round(time.Millisecond))
		}
		for i := range broken {
			repair(s, i)
		}
		s.requireReleased()
	}
}

// took returns how long a command takes.
func (s *scene) took(w *worker, line string) time.Duration {
	begun := time.Now()
	w.ask(line)
	return time.Since(begun)
}

// requireReleased waits until no server has a lease on "c".
func (s *scene) requireReleased() {
	s.t.Helper()
	for _, rdb := range s.admin() {
		require.Eventually(s.t, func() bool { return len(leaseKeys(s, rdb, "c")) == 0 }, 5*time.Second, 5*time.Millisecond, "all nodes are released")
	}
}

func (s *scene) present(key string) (n int) {
	for _, rdb := range s.admin() {
		n += len(leaseKeys(s, rdb, key))
	}
	return n
}

func minorityRestarted(s *scene) {
	w, other := s.warm()
	w.ask("hold c")
	w.ask("write c")
	for round := range 2 {
		require.Eventually(s.t, func() bool { return s.present("c") == 5 }, 5*time.Second, 10*time.Millisecond)
		s.deployment.servers[2*round].Restart()
		s.deployment.servers[2*round+1].Restart()
		require.Eventually(s.t, func() bool { return s.present("c") == 5 }, 5*time.Second, 10*time.Millisecond, "the next renewal restores the lease on all nodes")
		require.Equal(s.t, "true", w.ask("valid c"))
	}
	s.proven(true, "two nodes were restarted, and then two others")
	said, granted := other.try("hold c")
	require.False(s.t, granted, said)
	w.ask("release c")
}

func majorityRestarted(s *scene) {
	w, other := s.warm()
	stale := w.fence("hold c")
	w.ask("write c")
	require.Eventually(s.t, func() bool { return s.present("c") == 5 }, 5*time.Second, 10*time.Millisecond)
	for _, server := range s.deployment.majority() {
		server.Restart()
	}
	s.proven(true, "%d nodes were restarted", len(s.deployment.majority()))
	require.Greater(s.t, other.fence("hold c 5s"), stale)
	require.Equal(s.t, "true", other.ask("write c"))
	require.Equal(s.t, "false", w.ask("write c"), "it is fenced")
	w.ask("lost c 5s")
	_, ok := w.try("release c")
	require.False(s.t, ok)
	require.Equal(s.t, "true", other.ask("valid c"), "I7")
	other.ask("release c")
}
