package faults_test

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Faults of answers: lost, or late.
var replyRows = []row{
	{number: 7, name: "reply lost on acquire", backends: everyone, ci: []string{"single"}, beliefs: 3, run: replyLostOnAcquire,
		shows: map[string]string{"": `^onerun.acquire.unknown\{error.type=connection`, "redlock": `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=acquire`}},
	{number: 7, name: "reply lost on renew", backends: everyone, ci: []string{"reentrant"}, beliefs: 3, run: replyLostOnRenew,
		shows: map[string]string{"": `^onerun.renew.duration\{error.type=connection`, "redlock": `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=renew`}},
	{number: 7, name: "reply lost on release", backends: everyone, beliefs: 3, run: replyLostOnRelease,
		shows: map[string]string{"": `^onerun.store.operation.duration\{error.type=connection,onerun.operation=release`,
			"redlock": `^onerun.node.operation.duration\{error.type=connection.*onerun.operation=release`}},
	{number: 7, name: "replies lost again and again", backends: everyone, beliefs: 10, run: repliesLost,
		shows: map[string]string{"": `error.type=connection`}},
	{number: 8, name: "acquire answered after 0.5 TTL", backends: everyone, ci: []string{"redlock"}, run: slowGrant(ttl/2, 5), shows: losses},
	{number: 8, name: "acquire answered after 0.9 TTL", backends: everyone, run: slowGrant(ttl*9/10, 3), shows: late},
	{number: 8, name: "acquire answered after 1.1 TTL", backends: everyone, ci: []string{"single"}, run: slowGrant(ttl*11/10, 1), shows: timeouts},
}

var losses = map[string]string{"": `^onerun.lease.losses\{onerun.loss.reason=expired`}

// late is either of the two.
var late = map[string]string{"": `^onerun.(lease.losses\{onerun.loss.reason=expired|acquire.unknown\{error.type=timeout)`}

var timeouts = map[string]string{"": `^onerun.acquire.unknown\{error.type=(timeout|quorum)`}

// warm returns two workers that know their servers, which know the scripts.
func (s *scene) warm() (one, other *worker) {
	one, other = s.worker(), s.worker()
	s.keys["c"] = true
	one.ask("take c")
	other.ask("take c")
	return one, other
}

// loseReplies has each way of the worker lose the next n answers to a script, and returns what
// says whether it has.
func loseReplies(w *worker, n int) (lost func() bool) {
	for _, p := range w.proxies {
		p.DropReplyTo("evalsha", n)
	}
	return func() bool {
		for _, p := range w.proxies {
			if p.Dropped() < n {
				return false
			}
		}
		return true
	}
}

func replyLostOnAcquire(s *scene) {
	w, other := s.warm()
	lost := loseReplies(w, 1)
	first := w.fence("hold c")
	s.proven(lost(), "each server's answer to the claim was lost")
	require.Equal(s.t, "true", w.ask("write c"))
	said, granted := other.try("hold c")
	require.False(s.t, granted, said)
	w.ask("release c")
	require.Greater(s.t, other.fence("hold c 5s"), first, "it was counted once: one release has freed it")
	other.ask("release c")
}

func replyLostOnRenew(s *scene) {
	w, other := s.warm()
	w.ask("hold c")
	w.ask("write c")
	lost := loseReplies(w, 2)
	require.Eventually(s.t, lost, 5*time.Second, time.Millisecond)
	s.proven(true, "each server's answers to two renewals were lost")
	s.pass(ttl)
	require.Equal(s.t, "true", w.ask("valid c"))
	said, granted := other.try("hold c")
	require.False(s.t, granted, said)
	w.ask("release c")
}

func replyLostOnRelease(s *scene) {
	w, other := s.warm()
	w.ask("hold c")
	w.ask("write c")
	lost := loseReplies(w, 1)
	w.ask("release c")
	require.Eventually(s.t, lost, 5*time.Second, time.Millisecond)
	s.proven(true, "each server's answer to the release was lost")
	other.ask("hold c 5s")
	other.ask("write c")
	s.pass(ttl) // a release that is sent again must not end the lease of the next
	require.Equal(s.t, "true", other.ask("valid c"))
	other.ask("release c")
}

func repliesLost(s *scene) {
	workers := s.loop(3)
	var paths []*redistest.Proxy
	for _, w := range workers {
		paths = append(paths, w.proxies...)
	}
	for begun := time.Now(); time.Since(begun) < 4*ttl; s.pass(40 * time.Millisecond) {
		paths[rand.IntN(len(paths))].DropReplyTo("evalsha", 1)
	}
	lost := 0
	for _, p := range paths {
		p.Restore()
		lost += p.Dropped()
	}
	s.proven(lost >= 10, "%d answers were lost", lost)
}

// settling is longer than the first fences of a counter are ahead of the clock, see counter.lua.
const settling = 150 * time.Millisecond

// slowGrant delays what the servers answer to a worker. It gets the lease for what is left of the
// TTL, if anything, as its renewals are as late.
//
// The nodes of a RedLock grant one fence at once if the worker knows their clocks, and these are
// past the last fence. Otherwise the claim takes a second round trip, for which it has no time. So
// the worker asks without a delay first, and some time passes.
func slowGrant(delay time.Duration, maxTries int) func(s *scene) {
	return func(s *scene) {
		w, other := s.warm()
		granted := false
		for try := 1; try <= maxTries && !granted; try++ {
			w.ask("take c")
			s.pass(settling)
			for _, p := range w.proxies {
				p.Delay(delay)
			}
			granted = s.slowClaim(w, other, delay)
		}
		require.True(s.t, granted || delay > ttl/2, "it was never granted: of the TTL half is left")
	}
}

// slowClaim reports whether a claim was granted whose answer is delayed. Another takes the key as
// soon as it is free.
func (s *scene) slowClaim(w, other *worker, delay time.Duration) (granted bool) {
	begun := time.Now()
	said, granted := w.try("hold c")
	took := time.Since(begun)
	s.proven(took >= min(delay, ttl*9/10), "the claim took %v, granted: %v", took.Round(time.Millisecond), granted)
	other.Tell("take c")
	switch {
	case granted:
		require.Less(s.t, delay, ttl, "it was granted after the TTL had passed")
		require.Equal(s.t, "expired", w.ask("lost c 5s"))
		w.try("release c") // until then it is renewed
	default:
		require.Regexp(s.t, "(timeout|quorum): ", said, "I8")
	}
	for _, p := range w.proxies {
		p.Restore()
	}
	other.reply()
	return granted
}
