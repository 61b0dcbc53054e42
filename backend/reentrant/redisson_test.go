package reentrant_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A world is where services in Go and in Java share locks.
type world struct {
	nodes   []*redistest.Server
	connect func(testing.TB) redis.UniversalClient
	opts    []reentrant.Option
	mode    redissontest.ShardedSubscription
	sharded bool                                               // Java uses sharded channels
	channel func(java *redissontest.Client, key string) string // of a release; nil for an RLock
}

// shared is what a check has to do with: its world, clients of its own in it, and a key.
type shared struct {
	*testing.T
	world
	rdb         redis.UniversalClient
	locker      *reentrant.Locker
	java, other *redissontest.Client
	key         string
}

// checks of which claims may hold the lock.
var checks = map[string]func(*shared){
	"Java's hold keeps us out":                         javaKeepsUsOut,
	"our hold keeps Java out":                          weKeepJavaOut,
	"Java's nested unlock does not wake us":            javaNestedUnlockDoesNotWakeUs,
	"Java's forceUnlock of our hold is a loss":         javaForceUnlockIsALoss,
	"Java's hold ends by itself":                       javaHoldEnds,
	"we join no hold of Java's, and Java none of ours": nobodyJoins,
	"a done marker keeps Java out":                     doneMarkerKeepsJavaOut,
	"Java's hold keeps shared calls out":               javaKeepsSharedCallsOut,
	"shared leases keep Java out":                      sharedLeasesKeepJavaOut,
}

// messages are checks of what is published when the lock is released.
var messages = map[string]func(*shared){
	"our release wakes Java":                 ourReleaseWakesJava,
	"Java's unlock wakes us":                 javaUnlockWakesUs,
	"only our last release wakes Java":       lastReleaseWakesJava,
	"Java learns how long a key is kept for": minimumHoldKeepsJavaOut,
	"only the last shared lease wakes Java":  lastSharedReleaseWakesJava,
	"Java's unlock wakes shared calls":       javaUnlockWakesSharedCalls,
}

func TestRedisson_sharesItsLocksWithUs(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	standalone := world{
		nodes:   []*redistest.Server{server},
		connect: func(t testing.TB) redis.UniversalClient { return server.Client(t) },
	}
	onCluster := func(mode redissontest.ShardedSubscription, opts ...reentrant.Option) world {
		return world{
			nodes: cluster.Nodes, mode: mode, sharded: mode != redissontest.Off, opts: opts,
			connect: func(t testing.TB) redis.UniversalClient { return cluster.Client(t) },
		}
	}
	plain, both := reentrant.WithPublish(reentrant.PublishPlain), reentrant.WithPublish(reentrant.PublishBoth)
	for _, c := range []struct {
		name, key string
		world     world
		checks    []map[string]func(*shared)
	}{
		{"standalone", "k", standalone, []map[string]func(*shared){checks, messages}},
		{"Cluster", "{tenant}:k", onCluster(redissontest.Auto), []map[string]func(*shared){checks, messages}},
		{"Cluster, plain names", "k", onCluster(redissontest.Auto), []map[string]func(*shared){messages}},
		{"Cluster, Java off, we plain", "{tenant}:k", onCluster(redissontest.Off, plain), []map[string]func(*shared){messages}},
		{"Cluster, Java off, we both", "k", onCluster(redissontest.Off, both), []map[string]func(*shared){messages}},
		{"Cluster, Java sharded, we both", "k:{tenant}", onCluster(redissontest.Auto, both), []map[string]func(*shared){messages}},
	} {
		for _, checks := range c.checks {
			for name, check := range checks {
				t.Run(c.name+"/"+name, func(t *testing.T) { check(c.world.share(t, c.key+" "+t.Name())) })
			}
		}
	}
}

// share returns the fixture of a check. At the end of the check, it asserts that Java could read
// all messages.
func (w world) share(t *testing.T, key string) *shared {
	rdb := w.connect(t)
	mode := redissontest.WithShardedSubscription(w.mode)
	s := &shared{
		T: t, world: w, rdb: rdb, locker: reentrant.New(w.connect(t), w.opts...), key: key,
		java: redissontest.New(w.connect(t), mode), other: redissontest.New(w.connect(t), mode),
	}
	require.Equal(t, w.sharded, s.java.Sharded())
	t.Cleanup(func() {
		require.NoError(t, s.java.Malformed())
		require.NoError(t, s.other.Malformed())
	})
	// The servers learn the scripts.
	s.javaTakes(long)
	s.javaReleases()
	require.NoError(t, newGuardOver(s).Do(t.Context(), key, nothing))
	requireGone(t, rdb, key)
	return s
}

func newGuardOver(s *shared, opts ...guard.Option) *guard.Guard {
	s.Helper()
	return guardOver(s.T, s.locker, opts...)
}

// javaTakes takes the lock for Java's thread 1.
func (s *shared) javaTakes(lease time.Duration) {
	s.Helper()
	_, ok, err := s.java.Lock(s.key).TryLock(s.Context(), 1, lease)
	require.NoError(s, err)
	require.True(s, ok)
}

func (s *shared) javaReleases() {
	s.Helper()
	released, err := s.java.Lock(s.key).Unlock(s.Context(), 1)
	require.NoError(s, err)
	require.True(s, released)
}

// javaIsRefused asserts that Java does not get the lock. It returns how long Java should wait.
func (s *shared) javaIsRefused() time.Duration {
	s.Helper()
	left, ok, err := s.java.Lock(s.key).TryLock(s.Context(), 1, long)
	require.NoError(s, err)
	require.False(s, ok)
	require.Positive(s, left, "Java would wait forever")
	return left
}

type javaOutcome struct {
	wait redissontest.Wait
	err  error
	at   time.Time
}

// javaWaits starts to wait as another Java client does. It returns when that client sleeps until
// it is notified.
func (s *shared) javaWaits() <-chan javaOutcome {
	s.Helper()
	lock, done := s.other.Lock(s.key), make(chan javaOutcome, 1)
	go func() {
		wait, err := lock.Lock(s.Context(), 7, long)
		done <- javaOutcome{wait, err, time.Now()}
	}()
	require.Eventually(s, func() bool { return lock.Waiting() == 1 }, soon, step)
	return done
}

// requireJavaIn waits until Java has the lock, after one message, and gives it back.
func (s *shared) requireJavaIn(done <-chan javaOutcome) (at time.Time, byTTL int) {
	s.Helper()
	select {
	case got := <-done:
		require.NoError(s, got.err)
		require.Equal(s, 1, got.wait.ByMessage)
		require.Equal(s, 2+1+got.wait.ByTTL, got.wait.Tries)
		_, err := s.other.Lock(s.key).Unlock(s.Context(), 7)
		require.NoError(s, err)
		return got.at, got.wait.ByTTL
	case <-time.After(soon):
		require.FailNow(s, "Java sleeps on")
		return time.Time{}, 0
	}
}

// weWait starts to wait for the key, and returns when we listen and ask no more, and how many
// scripts have run by then.
func (s *shared) weWait(g *guard.Guard) (done <-chan outcome, scripts int64) {
	s.Helper()
	done = waits(s.T, g, s.key)
	s.requireListener()
	return done, settled(s.T, s.nodes...)
}

// requireListener waits until somebody listens for the key's release.
func (s *shared) requireListener() {
	s.Helper()
	channel := s.java.Lock(s.key).Channel()
	if s.channel != nil {
		channel = s.channel(s.java, s.key)
	}
	require.Eventually(s, func() bool {
		for _, node := range s.nodes {
			rdb := node.Client(s)
			n := rdb.PubSubNumSub(s.Context(), channel).Val()[channel]
			if s.sharded {
				n = rdb.PubSubShardNumSub(s.Context(), channel).Val()[channel]
			}
			_ = rdb.Close()
			if n == 1 {
				return true
			}
		}
		return false
	}, soon, step, "nobody listens")
}

func javaKeepsUsOut(s *shared) {
	g := newGuardOver(s)
	s.javaTakes(long)
	busy := requireBusy(s, g, s.key)
	require.InDelta(s, long, busy.Left, near)
	require.Equal(s, s.java.Lock(s.key).Field(1), busy.Label)
	timeLeft(s, s.rdb, s.key)
	s.javaReleases()
	require.NoError(s, g.Do(s.Context(), s.key, nothing))
}

func weKeepJavaOut(s *shared) {
	lease := acquire(s, newGuardOver(s), s.key)
	lock := s.java.Lock(s.key)
	left := s.javaIsRefused()
	require.InDelta(s, long, left, near)
	require.LessOrEqual(s, left, long)
	locked, err := lock.IsLocked(s.Context())
	require.NoError(s, err)
	require.True(s, locked)
	_, err = lock.Unlock(s.Context(), 1)
	require.ErrorIs(s, err, redissontest.ErrNotOwner)
	renewed, err := lock.Renew(s.Context(), 1)
	require.NoError(s, err)
	require.False(s, renewed)
	timeLeft(s, s.rdb, s.key)
	require.NoError(s, lease.Release(s.Context()), "it was left alone")
	requireGone(s, s.rdb, s.key)
	s.javaTakes(long)
	s.javaReleases()
}

func ourReleaseWakesJava(s *shared) {
	lease := acquire(s, newGuardOver(s), s.key)
	done := s.javaWaits()
	require.NoError(s, lease.Release(s.Context()))
	_, byTTL := s.requireJavaIn(done)
	require.Zero(s, byTTL)
}

func javaUnlockWakesUs(s *shared) {
	s.javaTakes(long)
	done, before := s.weWait(newGuardOver(s))
	s.javaReleases()
	requireIn(s, done)
	require.Equal(s, before+3, scripts(s, s.nodes...), "Java's unlock, one try, and the release")
}

func javaNestedUnlockDoesNotWakeUs(s *shared) {
	s.javaTakes(long)
	s.javaTakes(long)
	done, before := s.weWait(newGuardOver(s))
	released, err := s.java.Lock(s.key).Unlock(s.Context(), 1)
	require.NoError(s, err)
	require.False(s, released)
	require.Equal(s, before+1, settled(s, s.nodes...), "nobody has asked")
	require.Empty(s, done)
	s.javaReleases()
	requireIn(s, done)
}

func javaForceUnlockIsALoss(s *shared) {
	lease := acquire(s, newGuardOver(s, guard.WithTTL(renewed)), s.key)
	waiting := waits(s, newGuardOver(s), s.key)
	s.requireListener()
	forced, err := s.java.Lock(s.key).ForceUnlock(s.Context())
	require.NoError(s, err)
	require.True(s, forced)
	requireIn(s, waiting)
	requireNotHeld(s, lease)
	require.ErrorIs(s, lease.Release(s.Context()), guard.ErrLost)
}

func javaHoldEnds(s *shared) {
	g := newGuardOver(s)
	start := time.Now()
	s.javaTakes(ttl)
	require.Greater(s, requireIn(s, waits(s, g, s.key)).Sub(start), ttl-10*time.Millisecond)
}

func minimumHoldKeepsJavaOut(s *shared) { releasedButKept(s, guard.WithMinHold(ttl)) }

func doneMarkerKeepsJavaOut(s *shared) { releasedButKept(s, guard.WithOnce(ttl)) }

func releasedButKept(s *shared, opt guard.Option) {
	var done <-chan javaOutcome
	start := time.Now()
	err := newGuardOver(s).Do(s.Context(), s.key, func(context.Context) error {
		done = s.javaWaits()
		require.InDelta(s, long, s.javaIsRefused(), near)
		return nil
	}, opt)
	require.NoError(s, err)
	at, byTTL := s.requireJavaIn(done)
	// Notified of the release, it sleeps as long as the key is kept. Then it asks again, and some
	// more times in the last millisecond.
	require.Greater(s, at.Sub(start), ttl-10*time.Millisecond)
	require.Less(s, byTTL, 100)
	if at.Sub(start) < 2*ttl { // the machine has not paused until the key was free
		require.Positive(s, byTTL)
	}
}

func nobodyJoins(s *shared) {
	field := s.java.Lock(s.key).Field(1)
	g := newGuardOver(s, guard.WithOwner(field))
	s.javaTakes(long)
	require.Equal(s, field, requireBusy(s, g, s.key).Label)
	s.javaReleases()

	lease := acquire(s, g, s.key)
	s.javaIsRefused()
	n, err := s.java.Lock(s.key).HoldCount(s.Context(), 1)
	require.NoError(s, err)
	require.Zero(s, n)
	require.NoError(s, lease.Release(s.Context()))
}

func lastReleaseWakesJava(s *shared) {
	g := newGuardOver(s, guard.WithOwner("ours"))
	first, second := acquire(s, g, s.key), acquire(s, g, s.key)
	done := s.javaWaits()
	require.NoError(s, first.Release(s.Context()))
	timeLeft(s, s.rdb, s.key)
	require.Empty(s, s.other.Messages())
	s.javaIsRefused()
	require.NoError(s, second.Release(s.Context()))
	_, byTTL := s.requireJavaIn(done)
	require.Zero(s, byTTL)
}

// shareds are options with which several calls hold a key together.
var shareds = []guard.Option{guard.WithLimit(3), guard.WithShared()}

// twoLeases has two processes of ours hold the key together.
func twoLeases(s *shared, opt guard.Option) []*guard.Lease {
	s.Helper()
	there := guardOver(s.T, reentrant.New(s.connect(s), s.opts...))
	return []*guard.Lease{acquire(s, newGuardOver(s), s.key, opt), acquire(s, there, s.key, opt)}
}

func javaKeepsSharedCallsOut(s *shared) {
	g := newGuardOver(s)
	s.javaTakes(long)
	for _, opt := range append(shareds, guard.WithFair()) {
		var busy *guard.BusyError
		require.ErrorAs(s, g.Do(s.Context(), s.key, nothing, opt), &busy)
		require.Equal(s, s.java.Lock(s.key).Field(1), busy.Label)
	}
	s.javaReleases()
	for _, opt := range shareds {
		require.NoError(s, g.Do(s.Context(), s.key, nothing, opt))
	}
}

func sharedLeasesKeepJavaOut(s *shared) {
	for _, opt := range shareds {
		for _, lease := range twoLeases(s, opt) {
			require.InDelta(s, long, s.javaIsRefused(), near)
			_, err := s.java.Lock(s.key).Unlock(s.Context(), 1)
			require.ErrorIs(s, err, redissontest.ErrNotOwner)
			require.NoError(s, lease.Release(s.Context()), "it was left alone")
		}
		s.javaTakes(long)
		s.javaReleases()
	}
	lease := acquire(s, newGuardOver(s, guard.WithTTL(renewed)), s.key, guard.WithLimit(2))
	forced, err := s.java.Lock(s.key).ForceUnlock(s.Context())
	require.NoError(s, err)
	require.True(s, forced)
	requireNotHeld(s, lease)
}

func lastSharedReleaseWakesJava(s *shared) {
	leases := twoLeases(s, guard.WithShared())
	done := s.javaWaits()
	require.NoError(s, leases[0].Release(s.Context()))
	timeLeft(s, s.rdb, s.key)
	require.Empty(s, s.other.Messages())
	s.javaIsRefused()
	require.NoError(s, leases[1].Release(s.Context()))
	_, byTTL := s.requireJavaIn(done)
	require.Zero(s, byTTL)
}

func javaUnlockWakesSharedCalls(s *shared) {
	for _, opt := range shareds {
		s.javaTakes(long)
		done := waits(s.T, newGuardOver(s, opt), s.key)
		s.requireListener()
		settled(s.T, s.nodes...)
		s.javaReleases()
		requireIn(s, done)
	}
}
