package faults_test

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Faults in which servers forget what they have granted, or believe that its time is up.
var forgetfulRows = []row{
	{number: 17, name: "the server's clock jumps forward", backends: everyone, clocks: true, window: true, forgets: true, run: jumpsForward, shows: notHeld},
	{number: 17, name: "the clocks of two of five jump forward", backends: quorum, clocks: true, run: twoJumpForward},
	{number: 17, name: "the server's clock jumps back", backends: everyone, clocks: true, run: jumpsBack},
	{number: 19, name: "the server restarts empty", backends: one, window: true, forgets: true, ci: []string{"single"}, run: restartsEmpty, shows: notHeld},
	{number: 20, name: "Sentinel fails over to a replica without the key", backends: []string{"sentinel", "sentinel of reentrant"}, window: true, forgets: true,
		run: failsOver, shows: notHeld},
	{number: 20, name: "Sentinel replaces a master that is frozen, which goes on later", backends: behindSentinel, window: true, forgets: true,
		slow: true, run: outlivesAFreeze},
	{number: 20, name: "Sentinel replaces a master that clients still reach", backends: behindSentinel, window: true, forgets: true,
		path: true, run: outlivesItsSentinels},
}

var behindSentinel = []string{"sentinel", "sentinel of reentrant", "sentinel-cluster", "sentinel-cluster of reentrant"}

// requireSucceeded has another worker take "k" after the store has forgotten the holder's lease.
// The holder does not know that yet. The resource can distinguish the two, and the holder finds
// out at its next renewal.
func (s *scene) requireSucceeded(holder, next *worker, fence uint64) {
	s.t.Helper()
	require.Greater(s.t, next.fence("got k"), fence)
	require.Equal(s.t, "true", next.ask("write k"))
	require.Equal(s.t, "false", holder.ask("write k"), "I2: whether it believes or not")
	require.Equal(s.t, string(guard.LossNotHeld), holder.ask("lost k "+calmLimit.String()))
	_, released := holder.try("release k")
	require.False(s.t, released)
	require.Equal(s.t, "true", next.ask("valid k"), "I7: the release has left it alone")
	require.Equal(s.t, "true", next.ask("write k"))
	next.ask("release k")
	s.keys["k"] = true
}

// jumpsForward moves the clocks on which leases end by far more than a lease lasts.
func jumpsForward(s *scene) {
	holder, next := s.worker(patiently), s.worker(patiently)
	fence := holder.fence("hold k " + calmLimit.String())
	holder.ask("write k")
	next.ask("await k k")
	next.ask("busy k")
	s.loop(2)
	for i := range s.deployment.majority() {
		before := s.time(i)
		s.deployment.clocks[i].Jump(2 * time.Minute)
		s.proven(s.time(i).Sub(before) > time.Minute, "server %d is two minutes ahead", i+1)
	}
	s.requireSucceeded(holder, next, fence)
}

// twoJumpForward moves the clocks of a minority, which takes nothing from anybody: it has the
// lease back at its next renewal.
func twoJumpForward(s *scene) {
	w, other := s.worker(patiently), s.worker(patiently)
	w.ask("hold k " + calmLimit.String())
	w.ask("write k")
	for i := range 2 {
		before := s.time(i)
		s.deployment.clocks[i].Jump(2 * time.Minute)
		s.proven(s.time(i).Sub(before) > time.Minute, "server %d is two minutes ahead", i+1)
	}
	said, granted := other.try("hold k")
	require.False(s.t, granted)
	require.Contains(s.t, said, "busy")
	s.pass(patient / 2) // for a renewal
	require.Equal(s.t, "true", w.ask("valid k"))
	require.Equal(s.t, "true", w.ask("write k"))
	w.ask("release k")
	s.keys["k"] = true
}

// jumpsBack moves the servers' clocks back, so that leases would last for an hour longer. A
// renewal corrects that, and so does a release.
func jumpsBack(s *scene) {
	renewed, released := s.worker(patiently), s.worker(patiently)
	renewed.ask("hold k " + calmLimit.String())
	renewed.ask("write k")
	fence := released.fence("hold r " + calmLimit.String())
	released.ask("write r")
	for i := range s.deployment.servers {
		s.deployment.clocks[i].Jump(-time.Hour)
		s.proven(s.longest(i) > time.Hour/2, "server %d ends leases an hour late", i+1)
	}
	released.ask("release r")
	require.Greater(s.t, renewed.fence("take r"), fence, "I2: fences grow by a clock that was set back, too")
	require.Eventually(s.t, func() bool {
		for i := range s.deployment.servers {
			if s.longest(i) > patient {
				return false
			}
		}
		return true
	}, calmLimit, 10*time.Millisecond, "the next renewal corrects the expiry")
	require.Equal(s.t, "true", renewed.ask("valid k"))
	renewed.ask("release k")
	s.loop(2)
	s.pass(2 * ttl)
	s.keys["k"], s.keys["r"] = true, true
}

// time is what a server's clock shows.
func (s *scene) time(server int) time.Time {
	s.t.Helper()
	at, err := s.deployment.servers[server].Client(s.t).Time(context.Background()).Result()
	require.NoError(s.t, err)
	return at
}

// longest is for how long a server goes on knowing the longest lease.
func (s *scene) longest(server int) (most time.Duration) {
	s.t.Helper()
	rdb := s.deployment.servers[server].Client(s.t)
	keys, err := rdb.Keys(context.Background(), "*").Result()
	require.NoError(s.t, err)
	for _, key := range keys {
		left, err := rdb.PTTL(context.Background(), key).Result()
		require.NoError(s.t, err)
		most = max(most, left)
	}
	return most
}

func restartsEmpty(s *scene) {
	holder, next := s.worker(patiently), s.worker(patiently)
	fence := holder.fence("hold k " + calmLimit.String())
	holder.ask("write k")
	next.ask("await k k")
	next.ask("busy k")
	s.loop(2)
	s.deployment.servers[0].Restart()
	s.proven(s.started(0), "the server has a life of its own, and knows nothing of the one before")
	s.requireSucceeded(holder, next, fence)
}

// started reports whether a server has been up for a short time only.
func (s *scene) started(server int) bool {
	s.t.Helper()
	info, err := s.deployment.servers[server].Client(s.t).InfoMap(context.Background(), "server", "keyspace").Result()
	require.NoError(s.t, err)
	up, err := time.ParseDuration(info["Server"]["uptime_in_seconds"] + "s")
	require.NoError(s.t, err)
	return up < time.Minute
}

func outlivesAFreeze(s *scene) {
	s.outlives(func(sentinel *redistest.Sentinel) {
		sentinel.Master.Freeze()
		time.Sleep(1800 * time.Millisecond)
		s.proven(sentinel.WaitFailover(s.t) == sentinel.Replica, "the replica is the master")
		sentinel.Master.Thaw()
	})
}

func outlivesItsSentinels(s *scene) {
	s.outlives(func(sentinel *redistest.Sentinel) {
		sentinel.Path.Close()
		s.proven(sentinel.WaitFailover(s.t) == sentinel.Replica, "the replica is the master")
	})
}

// outlives replaces a master that lives on. A holder whose client has other work renews at the new
// master from then on, so that no other process gets the key.
func (s *scene) outlives(replace func(*redistest.Sentinel)) {
	const ttl = 9 * time.Second
	holder, next := s.worker(func(t *task) { t.TTL = ttl }), s.worker(patiently)
	fence := holder.fence("hold k " + (4 * ttl).String())
	holder.ask("write k")
	holder.ask("take a")
	holder.ask("loop 2 a")
	s.keys["a"], s.keys["k"] = true, true
	time.Sleep(ttl / 2) // the replica has a lease that was renewed
	replace(s.deployment.sentinel)
	next.ask("await k k")
	time.Sleep(2 * ttl)
	next.ask("busy k")
	require.Equal(s.t, "true", holder.ask("write k"))
	holder.ask("release k")
	require.Greater(s.t, next.fence("got k"), fence)
	next.ask("release k")
}

// failsOver freezes the replica, has the master grant a lease that is not replicated, and kills
// the master.
func failsOver(s *scene) {
	// the holder still believes in its lease when the replica has become the master
	const ttl = 20 * time.Second
	holder, next := s.worker(func(t *task) { t.TTL = ttl }), s.worker(patiently)
	holder.ask("take warm")
	ctx, sentinel := context.Background(), s.deployment.sentinel
	sentinel.Replica.Freeze()
	// After the thaw, the replica would read from the socket what the master has sent.
	killed, err := sentinel.Master.Client(s.t).ClientKillByFilter(ctx, "TYPE", "replica").Result()
	require.NoError(s.t, err)
	s.proven(killed == 1, "the replica was cut off from the master")
	fence := holder.fence("hold k " + calmLimit.String())
	holder.ask("write k")
	sentinel.Master.Kill()
	sentinel.Replica.Thaw()
	require.Same(s.t, sentinel.Replica, sentinel.WaitFailover(s.t))
	keys, err := sentinel.Replica.Client(s.t).Keys(ctx, "*").Result()
	require.NoError(s.t, err)
	s.proven(!strings.Contains(strings.Join(keys, " "), "{k}") && !strings.Contains(strings.Join(keys, " "), ":k"), "the new master has no lease on k: %v", keys)
	next.ask("await k k")
	s.requireSucceeded(holder, next, fence)
}
