package faults_test

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Faults of the servers, and of the way to them.
var serverRows = []row{
	{number: 5, name: "Redis frozen for 0.2 TTL", backends: everyone, beliefs: 10, run: frozenFor(ttl / 5)},
	{number: 5, name: "Redis frozen for 1 TTL", backends: everyone, ci: everyone, beliefs: 10, run: frozenFor(ttl), shows: losses},
	{number: 5, name: "Redis frozen for 3 TTL", backends: everyone, beliefs: 10, run: frozenFor(3 * ttl), shows: losses},
	{number: 5, name: "CLIENT PAUSE for 1 TTL", backends: everyone, beliefs: 10, run: pausedClients, shows: losses},
	{number: 6, name: "Redis killed and stays down", backends: everyone, ci: everyone, beliefs: 6, forgets: true, run: deadServer,
		shows: map[string]string{"": `^onerun.lease.losses\{onerun.loss.reason=expired`}},
	{number: 9, name: "black hole", backends: everyone, ci: everyone, beliefs: 10, run: blackHole((*redistest.Proxy).GoDark), shows: losses},
	{number: 9, name: "black hole for requests", backends: everyone, beliefs: 10, run: blackHole((*redistest.Proxy).DarkRequests), shows: losses},
	{number: 9, name: "black hole for replies", backends: everyone, beliefs: 10, run: blackHole((*redistest.Proxy).DarkReplies), shows: losses},
}

// frozenFor freezes all servers while clients loop, one holds a lease, and one asks with little
// time.
func frozenFor(d time.Duration) func(s *scene) {
	return func(s *scene) {
		s.loop(2)
		holder, hurried := s.worker(), s.worker()
		s.keys["held"], s.keys["other"] = true, true
		hurried.ask("take other")
		holder.ask("hold held")
		holder.ask("write held")
		for _, server := range s.deployment.servers {
			server.Freeze()
		}
		begun := time.Now()
		hurried.Tell(fmt.Sprint("within other ", min(d, ttl)/2))
		s.pass(d)
		for _, server := range s.deployment.servers {
			server.Thaw()
		}
		s.proven(true, "%d servers stood still for %v", len(s.deployment.servers), time.Since(begun).Round(time.Millisecond))
		said, granted := hurried.receive()
		require.False(s.t, granted, said)
		require.Contains(s.t, said, "deadline exceeded", "I6, I8")
		s.after(d, holder)
	}
}

// after looks at a lease on "held" after a fault that has lasted for d.
func (s *scene) after(d time.Duration, holder *worker) {
	if d >= ttl {
		require.Equal(s.t, "expired", holder.ask("lost held 10s"))
		// as a function does that returns; until then its lease is renewed
		holder.try("release held")
		return
	}
	s.pass(ttl)
	require.Equal(s.t, "true", holder.ask("valid held"), "a short fault costs no lease")
	holder.ask("release held")
}

func pausedClients(s *scene) {
	s.loop(2)
	holder := s.worker()
	s.keys["held"] = true
	holder.ask("hold held")
	holder.ask("write held")
	for _, rdb := range s.admin() {
		require.NoError(s.t, rdb.Do(s.t.Context(), "CLIENT", "PAUSE", ttl.Milliseconds(), "ALL").Err())
	}
	begun := time.Now()
	for _, rdb := range s.admin() {
		require.NoError(s.t, rdb.Ping(s.t.Context()).Err())
	}
	s.proven(time.Since(begun) > ttl*9/10, "a PING took %v", time.Since(begun).Round(time.Millisecond))
	s.after(ttl, holder)
}

// deadServer kills a majority for good; the loops go on, in vain. At last they are restarted, so
// that what is left can be seen to work.
func deadServer(s *scene) {
	workers := s.loop(2)
	holder := s.worker()
	s.keys["held"] = true
	holder.ask("hold held")
	holder.ask("write held")
	before := conns(workers)
	begun := time.Now()
	for _, server := range s.deployment.majority() {
		server.Kill()
	}
	s.proven(true, "%d of %d servers were killed", len(s.deployment.majority()), len(s.deployment.servers))
	require.Equal(s.t, "expired", holder.ask("lost held 10s"), "I3")
	holder.try("release held")
	said, granted := holder.try("hold other")
	require.False(s.t, granted)
	require.Contains(s.t, said, "acquire", "I8")
	s.pass(3 * ttl)
	dials, down := conns(workers)-before, time.Since(begun)
	limit := int(down/time.Millisecond) * len(workers) * len(s.deployment.servers) / 2
	require.Less(s.t, dials, limit, "no busy loop of dials")
	s.proven(dials > 0, "%d dials in %v", dials, down.Round(time.Millisecond))
	// Not before what was granted has ended everywhere: that a server which comes back empty
	// grants again is another fault.
	for _, server := range s.deployment.majority() {
		server.Restart()
	}
	for _, w := range s.live() {
		w.ask("cutoff")
	}
}

func conns(workers []*worker) (n int) {
	for _, w := range workers {
		for _, p := range w.proxies {
			n += p.Conns()
		}
	}
	return n
}

// blackHole blocks the path of one worker for two TTLs. Other workers take over its leases.
func blackHole(dark func(*redistest.Proxy)) func(s *scene) {
	return func(s *scene) {
		s.loop(2)
		cut := s.worker()
		s.keys["held"], s.keys["other"] = true, true
		cut.ask("hold held")
		cut.ask("write held")
		cut.ask("loop 2 a,b")
		next := s.worker()
		next.Tell("take held")
		for _, p := range cut.proxies {
			dark(p)
		}
		require.Equal(s.t, "expired", cut.ask("lost held 10s"), "I3")
		cut.try("release held")
		begun := time.Now()
		said, granted := cut.try("within other 200ms")
		require.False(s.t, granted, "a grant came through a black hole")
		require.Contains(s.t, said, "deadline exceeded", "I6, I8")
		next.reply()
		s.pass(ttl)
		s.proven(true, "no answer came to a claim for %v, and its lease was taken over by another", time.Since(begun).Round(time.Millisecond))
		for _, p := range cut.proxies {
			p.Restore()
		}
	}
}
