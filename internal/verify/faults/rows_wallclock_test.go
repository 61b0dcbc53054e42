package faults_test

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
)

// Faults of a worker's own clock.
var wallClockRows = []row{
	{number: 18, name: "the worker's wall clock jumps", backends: everyone, beliefs: 10, run: wallClockJumps},
	{number: 18, name: "the worker's wall clock jumps while it hears nothing", backends: everyone, run: wallClockJumpsInTheDark,
		shows: map[string]string{"": `^onerun.lease.losses\{onerun.loss.reason=expired`}},
	{number: 18, name: "the worker's wall clock jumps while a call is under way", backends: everyone, run: wallClockJumpsUnderACall},
}

// wallJumps are what the wall clock of a worker is moved by: hours, and in the end it is right
// again.
var wallJumps = []time.Duration{3 * time.Hour, -7 * time.Hour, 4 * time.Hour}

// shifted starts a worker whose wall clock is moved by what it returns.
func (s *scene) shifted(ttl time.Duration) (w *worker, jump func(time.Duration)) {
	s.t.Helper()
	program, err := clocktest.BuildGo(s.t.Context(), s.t.TempDir(), "-c", ".")
	require.NoError(s.t, err)
	clock := clocktest.New(s.t)
	w = s.worker(func(t *task) { t.TTL, t.program, t.env = ttl, program, clock.Env() })
	return w, func(d time.Duration) {
		s.t.Helper()
		before := s.wallClock(w)
		clock.Jump(d)
		moved := s.wallClock(w) - before
		s.proven((moved-d).Abs() < time.Minute, "its clock has moved by %v", moved.Round(time.Minute))
	}
}

func (s *scene) wallClock(w *worker) time.Duration {
	s.t.Helper()
	ns, err := strconv.ParseInt(w.ask("now"), 10, 64)
	require.NoError(s.t, err)
	return time.Duration(ns)
}

// wallClockJumps moves the clock of a worker that holds a lease, waits for another, waits for a
// third for a second, and has done a fourth.
func wallClockJumps(s *scene) {
	const second = time.Second
	w, jump := s.shifted(patient)
	other := s.worker(withTTL(longTTL))
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	w.ask("await once once once=1h")
	w.ask("got once")
	other.ask("hold held " + calmLimit.String())
	for i, d := range wallJumps {
		other.ask("hold waited " + calmLimit.String())
		w.ask("await waits waited")
		w.ask("busy waits")
		w.ask("await shortly held wait=1s")
		begun := time.Now()
		jump(d)
		if i == 0 {
			w.ask("finish once")
		}
		said, granted := w.try("got shortly")
		waited := time.Since(begun)
		require.False(s.t, granted)
		require.Contains(s.t, said, "is busy")
		require.Greater(s.t, waited, second*9/10, "a wait lasts for its full time")
		require.Less(s.t, waited, second+prompt)

		require.Equal(s.t, "true", w.ask("waits waits"), "it is not let in by its clock")
		require.Equal(s.t, "true", w.ask("valid k"))
		other.ask("release waited")
		released := time.Now()
		w.ask("got waits")
		require.Less(s.t, time.Since(released), prompt, "I4")
		w.ask("release waited")
		for _, one := range []*worker{w, other} {
			one.ask("await once once once=1h wait=1s")
			said, granted = one.try("got once")
			require.False(s.t, granted)
			require.Contains(s.t, said, "is done", "the marker stands for as long as its window")
		}
	}
	s.pass(patient) // it is renewed
	require.Equal(s.t, "true", w.ask("valid k"))
	require.Equal(s.t, "true", w.ask("write k"))
	require.NotContains(s.t, w.ask("metrics"), "onerun.renew", "no renewal has failed")
	s.keys["k"], s.keys["waited"] = true, true
	w.ask("release k")
}

// wallClockJumpsInTheDark moves the clock of a worker that cannot renew its lease. The lease ends
// at its deadline, neither sooner nor later.
func wallClockJumpsInTheDark(s *scene) {
	w, jump := s.shifted(patient)
	s.keys["k"] = true
	for _, d := range wallJumps {
		w.ask("hold k " + calmLimit.String())
		w.ask("write k")
		for _, p := range w.proxies {
			p.GoDark()
		}
		begun := time.Now()
		jump(d)
		require.Equal(s.t, string(guard.LossExpired), w.ask("lost k 60s"))
		require.Greater(s.t, time.Since(begun), patient/2, "it was renewed a third of a TTL ago, at the most")
		require.Less(s.t, time.Since(begun), patient+prompt)
		for _, p := range w.proxies {
			p.Restore()
		}
		w.try("release k")
		s.worker().ask("take k") // once it has ended in the store
	}
}

// settledScripts returns how many scripts the servers have run, once none comes any more: a release
// does not wait for the slowest server.
func (s *scene) settledScripts() int64 {
	last := s.scripts()
	for since := time.Now(); time.Since(since) < 50*time.Millisecond; time.Sleep(5 * time.Millisecond) {
		if now := s.scripts(); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// wallClockJumpsUnderACall holds the answers to a claim while the clock is moved: they are not
// late then, and nothing is asked a second time. The claim comes after many others, so that it
// goes out by a connection of our own.
func wallClockJumpsUnderACall(s *scene) {
	w, jump := s.shifted(longTTL)
	s.keys["k"] = true
	for _, d := range wallJumps {
		w.ask("takes pair 50")
		for _, p := range w.proxies {
			p.HoldReplyTo("evalsha")
		}
		before := s.settledScripts()
		w.ask("await w k")
		require.Eventually(s.t, func() bool { return s.scripts() > before+int64(len(s.deployment.servers)/2) }, calmLimit, time.Millisecond)
		jump(d)
		s.pass(100 * time.Millisecond) // a call that waits reads the clock now and then
		require.Equal(s.t, "true", w.ask("waits w"))
		require.LessOrEqual(s.t, s.scripts(), before+int64(len(s.deployment.servers)), "no server was asked a second time")
		for _, p := range w.proxies {
			p.ReleaseReplies()
		}
		w.ask("got w")
		w.ask("write k")
		w.ask("release k")
	}
}

// scripts is how many scripts the servers have run.
func (s *scene) scripts() (n int64) {
	s.t.Helper()
	for _, server := range s.deployment.servers {
		calls := server.Calls(s.t)
		n += calls["evalsha"] + calls["eval"]
	}
	return n
}
