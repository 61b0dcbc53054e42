package faults_test

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Faults of waiters, and of their notifications.
var waiterRows = []row{
	{number: 26, name: "wake-ups lost", backends: everyone, ci: []string{"single"}, run: wakeUpsLost, shows: map[string]string{"": `onerun.waiter.missed_wakeups`}},
	{number: 26, name: "wake-ups repeated", backends: everyone, run: wakeUpsRepeated},
	{number: 26, name: "pub/sub cut", backends: []string{"single", "reentrant", "redlock", "cluster"}, run: pubSubCut},
	{number: 27, name: "the first in line leaves", backends: everyone, run: firstLeaves("")},
	{number: 27, name: "the first in line leaves, fair", backends: one, run: firstLeaves("fair")},
	{number: 27, name: "the first in line is killed", backends: []string{"single", "reentrant", "redlock", "cluster"}, run: firstKilled("")},
	{number: 27, name: "the first in line is killed, fair", backends: []string{"single", "reentrant", "cluster"}, ci: []string{"cluster"}, run: firstKilled("fair")},
	{number: 27, name: "the first in line is killed when its turn has come, fair", backends: one, run: firstKilledWhenCalled},
}

const (
	// longTTL is the TTL of a holder whose lease does not expire during a test.
	longTTL = 10 * time.Minute
	// pushedTTL is the TTL of waiters that need a notification: without one, they poll at each
	// half of it. prompt is how long a notified waiter may take on a busy machine.
	pushedTTL = time.Minute
	prompt    = 10 * time.Second
	// pollingTTL is the TTL of waiters that get no notification.
	pollingTTL = 4 * time.Second
)

func withTTL(ttl time.Duration) func(*task) { return func(t *task) { t.TTL = ttl } }

// A claimant is a call that waits for "k".
type claimant struct {
	worker *worker
	name   string
}

// enqueue starts a worker that holds "k", and then n workers that wait for it, one after the
// other. Each waiter has the TTL and has subscribed.
func (s *scene) enqueue(n int, ttl time.Duration, how string) (holder *worker, all []claimant) {
	s.t.Helper()
	holder = s.worker(withTTL(longTTL))
	holder.ask("await h k " + how)
	holder.ask("got h")
	holder.ask("write k")
	s.keys["k"] = true
	for i := range n {
		w := s.worker(withTTL(ttl))
		w.ask("await w k " + how)
		w.ask("busy w")
		s.requireListeners(i + 1)
		all = append(all, claimant{w, "w"})
	}
	return holder, all
}

// handOff has the holder release "k". Then each waiter gets "k" within a time, and releases it. If
// the queue is fair, they get it in order.
func (s *scene) handOff(holder *worker, all []claimant, how string, within time.Duration) {
	s.t.Helper()
	var fence uint64
	for len(all) > 0 {
		holder.ask("release k")
		released := time.Now()
		at := s.first(all, within)
		s.t.Logf("the next was in %v after the release", time.Since(released).Round(time.Millisecond))
		if how == "fair" {
			require.Zero(s.t, at, "they come in order")
		}
		next := all[at]
		now := next.worker.fence("got " + next.name)
		require.Greater(s.t, now, fence, "I2")
		require.Equal(s.t, "true", next.worker.ask("write k"))
		holder, fence, all = next.worker, now, append(all[:at:at], all[at+1:]...)
	}
	holder.ask("release k")
}

// first returns which of the waiters gets "k" first.
func (s *scene) first(all []claimant, within time.Duration) int {
	s.t.Helper()
	// a waiter does not report by itself
	for start := time.Now(); time.Since(start) < within; time.Sleep(5 * time.Millisecond) {
		for i, c := range all {
			if c.worker.ask("waits "+c.name) == "false" {
				return i
			}
		}
	}
	require.Fail(s.t, "I4: nobody has got the key")
	return 0
}

// requireListeners waits until n workers have subscribed: in a Cluster on one of its nodes,
// elsewhere on all servers.
func (s *scene) requireListeners(n int) {
	s.t.Helper()
	want := int64(n * len(s.deployment.servers))
	if s.deployment.cluster != nil {
		want = int64(n)
	}
	require.Eventually(s.t, func() bool { return s.listeners() >= want }, calmLimit, 5*time.Millisecond, "%d workers have subscribed", n)
}

// listeners counts the connections that have subscribed.
func (s *scene) listeners() (n int64) {
	s.t.Helper()
	ctx := context.Background()
	for _, server := range s.deployment.servers {
		rdb := server.Client(s.t)
		plain, err := rdb.PubSubNumSub(ctx, rdb.PubSubChannels(ctx, "*").Val()...).Result()
		require.NoError(s.t, err)
		sharded, err := rdb.PubSubShardNumSub(ctx, rdb.PubSubShardChannels(ctx, "*").Val()...).Result()
		require.NoError(s.t, err)
		for _, channels := range []map[string]int64{plain, sharded} {
			for _, listening := range channels {
				n += listening
			}
		}
		_ = rdb.Close()
	}
	return n
}

// requireAsleep waits until the waiters stop polling: their subscription is confirmed, and they
// have found the key busy since. A waiter without a subscription polls each quarter of a second.
func (s *scene) requireAsleep() {
	s.t.Helper()
	asked, since := s.scripts(), time.Now()
	require.Eventually(s.t, func() bool {
		if now := s.scripts(); now != asked {
			asked, since = now, time.Now()
		}
		return time.Since(since) > 400*time.Millisecond
	}, calmLimit, 20*time.Millisecond, "the waiters keep polling")
}

// wakeUpsLost drops all notifications of releases to a waiter: it finds the free key by polling.
func wakeUpsLost(s *scene) {
	holder, all := s.enqueue(1, pollingTTL, "")
	s.requireAsleep()
	proxies := all[0].worker.proxies
	for _, p := range proxies {
		p.DropPushes(1 << 30)
	}
	s.handOff(holder, all, "", pollingTTL/2+prompt)
	swallowed := 0
	for _, p := range proxies {
		swallowed += p.Dropped()
		p.Restore()
	}
	s.proven(swallowed > 0, "%d pushes were swallowed", swallowed)
}

// wakeUpsRepeated notifies waiters of releases that did not happen, and repeats the notification
// of one that did.
func wakeUpsRepeated(s *scene) {
	holder, all := s.enqueue(2, pushedTTL, "")
	var notified int64
	for range 100 {
		notified += s.publish("0")
	}
	s.proven(notified >= 100, "waiters were notified %d times of a release that did not happen", notified)
	for _, c := range all {
		require.Equal(s.t, "true", c.worker.ask("waits w"))
	}
	require.Equal(s.t, "true", holder.ask("valid k"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 100 {
			s.publish("0")
		}
	}()
	s.handOff(holder, all, "", prompt)
	<-ended
}

// publish sends a message on all channels that have a subscriber, and returns how many subscribers
// have received it.
func (s *scene) publish(text string) (received int64) {
	s.t.Helper()
	ctx := context.Background()
	for _, rdb := range s.admin() {
		for _, channel := range rdb.PubSubChannels(ctx, "*").Val() {
			n, err := rdb.Publish(ctx, channel, text).Result()
			require.NoError(s.t, err)
			received += n
		}
	}
	return received
}

// pubSubCut cuts the connections that carry notifications, right before the key is released.
func pubSubCut(s *scene) {
	holder, all := s.enqueue(1, pollingTTL, "")
	var cut int64
	for _, rdb := range s.admin() {
		n, err := rdb.ClientKillByFilter(context.Background(), "TYPE", "pubsub").Result()
		require.NoError(s.t, err)
		cut += n
	}
	s.proven(cut > 0, "%d connections were cut", cut)
	s.handOff(holder, all, "", pollingTTL/2+prompt)
}

// firstLeaves has the first waiter of a process leave, which is the one that polls. Behind it wait
// another call of that process and one of another process.
func firstLeaves(how string) func(s *scene) {
	return func(s *scene) {
		holder, all := s.enqueue(1, pushedTTL, how)
		first := all[0].worker
		first.ask("await behind k " + how)
		first.ask("busy behind")
		last := s.worker(withTTL(pushedTTL))
		last.ask("await w k " + how)
		last.ask("busy w")
		s.requireListeners(2)
		said := first.ask("desert w")
		s.proven(strings.Contains(said, "context canceled"), "the first has left: %s", said)
		s.handOff(holder, []claimant{{first, "behind"}, {last, "w"}}, how, prompt)
	}
}

// firstKilled kills the process of the first waiter.
func firstKilled(how string) func(s *scene) {
	return func(s *scene) {
		holder, all := s.enqueue(3, pushedTTL, how)
		all[0].worker.Kill()
		s.proven(!lives(all[0].worker), "the process of the first waiter is gone")
		s.handOff(holder, all[1:], how, prompt)
	}
}

// firstKilledWhenCalled freezes the process of the first waiter, so that it cannot take the key
// when it is notified, and kills it a moment later.
func firstKilledWhenCalled(s *scene) {
	holder, all := s.enqueue(3, pushedTTL, "fair")
	first := all[0].worker
	require.NoError(s.t, first.Freeze())
	killed := make(chan struct{})
	time.AfterFunc(driver.NotifyGrace/2, func() { first.Kill(); close(killed) })
	s.handOff(holder, all[1:], "fair", prompt)
	<-killed
	s.proven(!lives(first), "the process of the first waiter stood still when the key was released, and then it was killed")
}

// lives reports whether the process of a worker is running.
func lives(w *worker) bool { return w.Signal(syscall.Signal(0)) == nil }
