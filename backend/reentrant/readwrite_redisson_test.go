package reentrant_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redissontest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// longest is the longest TTL of a shared claim.
	longest = 30 * time.Second
	// brief is for holds whose end a check waits for.
	brief = time.Second
)

// readWriteChecks check which claims may hold an RReadWriteLock.
var readWriteChecks = map[string]func(*shared){
	"a writer of ours keeps Java out":                        ourWriterKeepsJavaOut,
	"a writer of Java's keeps us out":                        javaWriterKeepsUsOut,
	"readers share the lock, and keep writers out":           readersShare,
	"a reader of Java's that leaves last leaves us the lock": lastJavaReaderLeavesUs,
	"a reader of ours that leaves last leaves Java the lock": ourLastReaderLeavesJava,
	"Java's renewals do not shorten our lease":               javaRenewals,
	"Java's writer becomes a reader":                         javaDowngrade,
	"Java's forceUnlock of a reader of ours is a loss":       forcedReader,
	"Java's forceUnlock of a writer of ours is a loss":       forcedWriter,
	"a writer that waits keeps our readers out, not Java's":  waitingWriter,
	"an RLock of Java's keeps us out":                        rLockKeepsUsOut,
}

// readWriteEnds are checks that wait for holds to end.
var readWriteEnds = map[string]func(*shared){
	"a reader of ours that dies makes way":           ourDeadReader,
	"a reader of Java's that dies makes way":         javaDeadReader,
	"what a writer of ours leaves keeps Java out":    whatAWriterLeaves,
	"a minimum hold of a reader of ours is a reader": minimumHoldReads,
}

// readWriteMessages check what is published when an RReadWriteLock is released.
var readWriteMessages = map[string]func(*shared){
	"our writer wakes all of Java's readers":      ourWriterWakesReaders,
	"our writer wakes Java's writer":              ourWriterWakesWriter,
	"Java learns how long a writer's key is kept": keptByWriter,
	"Java learns how long a reader's key is kept": keptByReader,
	"only our last reader wakes Java's writer":    ourLastReaderWakes,
	"Java's last reader wakes our writer":         javaReaderWakesUs,
	"Java's writer wakes our readers":             javaWriterWakesUs,
	"we find what Java's writer does not say":     silentDowngrade,
	"our writer that gives up wakes our reader":   givingUpWakes,
}

func TestLong_readWriteSharesRedissonsLocks(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := redistest.Start(t)
	cluster := redistest.StartCluster(t)
	channel := func(java *redissontest.Client, key string) string { return java.ReadLock(key).Channel() }
	standalone := world{
		nodes:   []*redistest.Server{server},
		connect: func(t testing.TB) redis.UniversalClient { return server.Client(t) },
		opts:    []reentrant.Option{reentrant.WithReadWrite()}, channel: channel,
	}
	onCluster := func(mode redissontest.ShardedSubscription, opts ...reentrant.Option) world {
		return world{
			nodes: cluster.Nodes, mode: mode, sharded: mode != redissontest.Off, channel: channel,
			opts:    append(opts, reentrant.WithReadWrite()),
			connect: func(t testing.TB) redis.UniversalClient { return cluster.Client(t) },
		}
	}
	both := reentrant.WithPublish(reentrant.PublishBoth)
	for _, c := range []struct {
		name, key string
		world     world
		checks    map[string]func(*shared)
	}{
		{"standalone", "k", standalone, readWriteChecks},
		{"standalone, ends", "k", standalone, readWriteEnds},
		{"Cluster", "{tenant}:k", onCluster(redissontest.Auto), readWriteChecks},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, check := range c.checks {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					c.world.checkReadWrite(t, c.key, check)
				})
			}
		})
	}
	// These count what all clients of the servers send.
	for _, c := range []struct {
		name, key string
		world     world
	}{
		{"standalone", "k", standalone},
		{"Cluster", "{tenant}:k", onCluster(redissontest.Auto)},
		{"Cluster, Java off, we both", "k", onCluster(redissontest.Off, both)},
	} {
		for name, check := range readWriteMessages {
			t.Run(c.name+"/"+name, func(t *testing.T) { c.world.checkReadWrite(t, c.key, check) })
		}
	}
}

func (w world) checkReadWrite(t *testing.T, key string, check func(*shared)) {
	s := w.share(t, key+" "+t.Name())
	check(s)
	requireGone(t, s.rdb, s.key)
}

// reads returns a claimant that shares the key.
func (s *shared) reads(id string) *claimant {
	c := claims(s, s.locker, s.key, id, id, longest)
	c.claim.MaxHolders = driver.Unlimited
	return c
}

// writes returns a claimant that holds the key alone.
func (s *shared) writes(id string) *claimant { return claims(s, s.locker, s.key, id, id, longest) }

// javaGets takes a lock of Java's for thread 1.
func (s *shared) javaGets(lock *redissontest.Lock, lease time.Duration) {
	s.Helper()
	_, ok, err := lock.TryLock(s.Context(), 1, lease)
	require.NoError(s, err)
	require.True(s, ok)
}

// javaUnlocks releases a hold of thread 1, and reports whether it was the last hold of the lock.
func (s *shared) javaUnlocks(lock *redissontest.Lock) bool {
	s.Helper()
	released, err := lock.Unlock(s.Context(), 1)
	require.NoError(s, err)
	return released
}

// javaMisses asserts that Java does not get the lock, and returns how long it is to wait.
func (s *shared) javaMisses(lock *redissontest.Lock) time.Duration {
	s.Helper()
	left, ok, err := lock.TryLock(s.Context(), 2, longest)
	require.NoError(s, err)
	require.False(s, ok)
	require.Positive(s, left, "Java would wait forever")
	return left
}

// misses asserts that the claim is busy.
func (c *claimant) misses() driver.Answer {
	c.t.Helper()
	grant := c.ask()
	require.Equal(c.t, driver.Busy, grant.State, "%+v", grant)
	require.Positive(c.t, grant.Left)
	return grant
}

func ourTimeoutKey(key, id string) string {
	if !strings.Contains(key, "{") {
		key = "{" + key + "}"
	}
	return key + ":onerun:" + id + ":read:rwlock_timeout:1"
}

func (s *shared) readLock() *redissontest.Lock  { return s.java.ReadLock(s.key) }
func (s *shared) writeLock() *redissontest.Lock { return s.java.WriteLock(s.key) }

func ourWriterKeepsJavaOut(s *shared) {
	w := s.writes("w")
	w.take()
	require.Equal(s, "write", s.rdb.HGet(s.Context(), s.key, "mode").Val())
	for range 2 {
		require.LessOrEqual(s, s.javaMisses(s.readLock()), longest)
		require.LessOrEqual(s, s.javaMisses(s.writeLock()), longest)
		require.True(s, w.take().Held)
		require.True(s, w.renew())
	}
	require.True(s, w.release(driver.After{}))
	s.javaGets(s.writeLock(), longest)
	require.True(s, s.javaUnlocks(s.writeLock()))
}

func javaWriterKeepsUsOut(s *shared) {
	s.javaGets(s.writeLock(), longest)
	for _, c := range []*claimant{s.reads("r"), s.writes("w")} {
		grant := c.misses()
		require.Equal(s, s.writeLock().Field(1), grant.Label)
		require.LessOrEqual(s, grant.Left, longest)
		require.False(s, c.renew())
		require.False(s, c.release(driver.After{}))
	}
	s.javaGets(s.readLock(), longest) // the same thread may
	require.True(s, s.javaUnlocks(s.writeLock()))
	require.True(s, s.javaUnlocks(s.readLock()))
}

func readersShare(s *shared) {
	r, w := s.reads("r"), s.writes("w")
	s.javaGets(s.readLock(), longest)
	require.Equal(s, s.readLock().Field(1), w.misses().Label)
	fence := r.take().Fence
	require.Greater(s, s.reads("r2").take().Fence, fence)
	s.javaGets(s.other.ReadLock(s.key), longest)
	s.javaMisses(s.writeLock())
	w.misses()
	require.Equal(s, "1", s.rdb.HGet(s.Context(), s.key, "onerun:r:read").Val())
	require.False(s, s.javaUnlocks(s.readLock()))
	require.True(s, r.release(driver.After{}))
	require.False(s, s.javaUnlocks(s.other.ReadLock(s.key)))
	s.javaMisses(s.writeLock())
	require.Equal(s, "label of r2", w.misses().Label)
	require.True(s, s.reads("r2").release(driver.After{}))
	require.Greater(s, w.take().Fence, fence)
	require.True(s, w.release(driver.After{}))
}

func lastJavaReaderLeavesUs(s *shared) {
	r := s.reads("r")
	r.claim.TTL = 10 * time.Second
	for range 2 { // before ours, and after it
		s.javaGets(s.readLock(), longest)
		r.take()
		require.InDelta(s, longest, timeLeft(s, s.rdb, s.key), near)
		require.False(s, s.javaUnlocks(s.readLock()))
		require.InDelta(s, r.claim.TTL, timeLeft(s, s.rdb, s.key), near)
		s.javaMisses(s.writeLock())
		require.True(s, r.renew())
		require.True(s, r.take().Held)
		s.writes("w").misses()
	}
	require.True(s, r.release(driver.After{}))
	requireGone(s, s.rdb, ourTimeoutKey(s.key, "r"))
}

func ourLastReaderLeavesJava(s *shared) {
	r := s.reads("r")
	r.take()
	s.javaGets(s.readLock(), 10*time.Second)
	require.InDelta(s, longest, timeLeft(s, s.rdb, s.key), near)
	require.True(s, r.release(driver.After{}))
	require.InDelta(s, 10*time.Second, timeLeft(s, s.rdb, s.key), near)
	s.writes("w").misses()
	s.javaMisses(s.other.WriteLock(s.key))
	held, err := s.readLock().Renew(s.Context(), 1)
	require.NoError(s, err)
	require.True(s, held)
	require.True(s, s.javaUnlocks(s.readLock()))
}

func javaRenewals(s *shared) {
	r := s.reads("r")
	s.javaGets(s.readLock(), 10*time.Second)
	for _, renew := range []func() (bool, error){
		func() (bool, error) { return s.readLock().Renew(s.Context(), 1) },
		func() (bool, error) { return s.readLock().RenewAll(s.Context(), 1) },
	} {
		r.take()
		end := time.Now().Add(longest)
		held, err := renew()
		require.NoError(s, err)
		require.True(s, held)
		require.Greater(s, timeLeft(s, s.rdb, s.key), time.Until(end)-10*time.Millisecond)
		require.True(s, r.renew())
		require.False(s, s.javaUnlocks(s.readLock()))
		require.Greater(s, timeLeft(s, s.rdb, s.key), time.Until(end)-10*time.Millisecond)
		s.javaGets(s.readLock(), 10*time.Second)
	}
	r.claim.TTL = longest + time.Millisecond
	_, err := s.locker.TryAcquire(s.Context(), r.claim)
	var refused *guard.SettingError
	require.ErrorAs(s, err, &refused)
	require.Equal(s, "WithTTL", refused.Setting)
	require.True(s, r.release(driver.After{}))
	require.True(s, s.javaUnlocks(s.readLock()))
}

func ourDeadReader(s *shared) {
	dead := s.reads("dead")
	dead.claim.TTL = brief
	dead.take()
	s.javaMisses(s.writeLock())
	require.Eventually(s, func() bool { return s.rdb.Exists(s.Context(), s.key).Val() == 0 }, soon, step)

	dead.take()
	s.javaGets(s.readLock(), longest)
	time.Sleep(brief + 50*time.Millisecond)
	require.False(s, dead.renew())
	require.False(s, dead.release(driver.After{}))
	require.NotEmpty(s, s.rdb.HGet(s.Context(), s.key, "onerun:dead:read").Val(), "Java keeps it")
	s.reads("r").take()
	require.Empty(s, s.rdb.HGet(s.Context(), s.key, "onerun:dead:read").Val(), "we do not")
	require.True(s, s.reads("r").release(driver.After{}))

	dead.take()
	time.Sleep(brief + 50*time.Millisecond)
	require.True(s, s.javaUnlocks(s.readLock()), "nobody is left")
	s.javaGets(s.writeLock(), longest)
	require.True(s, s.javaUnlocks(s.writeLock()))
}

func javaDeadReader(s *shared) {
	s.javaGets(s.readLock(), brief)
	r, w := s.reads("r"), s.writes("w")
	r.take()
	time.Sleep(brief + 50*time.Millisecond)
	require.EqualValues(s, 4, s.rdb.HLen(s.Context(), s.key).Val(), "its field is there yet")
	w.misses()
	require.True(s, r.release(driver.After{}))
	requireGone(s, s.rdb, s.key)

	// The hash may last longer than the holds in it.
	for _, c := range []*claimant{w, s.reads("r2")} {
		s.javaGets(s.writeLock(), longest)
		s.javaGets(s.readLock(), brief)
		require.True(s, s.javaUnlocks(s.writeLock()))
		time.Sleep(brief + 50*time.Millisecond)
		require.Positive(s, timeLeft(s, s.rdb, s.key))
		c.take()
		require.False(s, s.rdb.HExists(s.Context(), s.key, s.readLock().Field(1)).Val())
		require.True(s, c.release(driver.After{}))
	}
}

func javaDowngrade(s *shared) {
	r := s.reads("r")
	s.javaGets(s.writeLock(), longest)
	s.javaGets(s.readLock(), longest)
	r.misses()
	require.True(s, s.javaUnlocks(s.writeLock()))
	r.take()
	s.writes("w").misses()
	require.False(s, s.javaUnlocks(s.readLock()))
	require.True(s, r.release(driver.After{}))
}

func forcedReader(s *shared) {
	r := s.reads("r")
	r.take()
	forced, err := s.writeLock().ForceUnlock(s.Context())
	require.NoError(s, err)
	require.False(s, forced, "nobody writes")
	forced, err = s.readLock().ForceUnlock(s.Context())
	require.NoError(s, err)
	require.True(s, forced)
	require.False(s, r.renew())
	s.javaGets(s.readLock(), longest)
	require.False(s, r.renew(), "its timeout key is there yet")
	require.False(s, r.release(driver.After{}))
	require.True(s, s.javaUnlocks(s.readLock()))
}

func forcedWriter(s *shared) {
	w := s.writes("w")
	w.take()
	forced, err := s.readLock().ForceUnlock(s.Context())
	require.NoError(s, err)
	require.False(s, forced, "nobody reads")
	forced, err = s.writeLock().ForceUnlock(s.Context())
	require.NoError(s, err)
	require.True(s, forced)
	require.False(s, w.renew())
	require.False(s, w.release(driver.After{}))
}

func whatAWriterLeaves(s *shared) {
	for _, after := range []driver.After{{Keep: brief}, {Keep: brief, Done: true}} {
		w := s.writes("w")
		w.take()
		require.True(s, w.release(after))
		require.LessOrEqual(s, s.javaMisses(s.readLock()), brief)
		require.LessOrEqual(s, s.javaMisses(s.writeLock()), brief)
		want := driver.Busy
		if after.Done {
			want = driver.Done
		}
		require.Equal(s, want, s.reads("r").ask().State)
		require.Equal(s, want, s.writes("w2").ask().State)
		require.Eventually(s, func() bool { return s.rdb.Exists(s.Context(), s.key).Val() == 0 }, soon, step)
	}
}

func minimumHoldReads(s *shared) {
	r := s.reads("r")
	r.take()
	require.True(s, r.release(driver.After{Keep: brief}))
	require.False(s, r.renew())
	require.LessOrEqual(s, s.javaMisses(s.writeLock()), 2*brief)
	require.LessOrEqual(s, s.writes("w").misses().Left, 2*brief)
	s.javaGets(s.readLock(), longest)
	require.False(s, s.javaUnlocks(s.readLock()), "we are a reader yet")
	s.javaMisses(s.writeLock())
	require.Eventually(s, func() bool { return s.rdb.Exists(s.Context(), s.key).Val() == 0 }, soon, step)
}

func waitingWriter(s *shared) {
	w, r := s.writes("w"), s.reads("r")
	w.claim.Queue = driver.Retried
	s.javaGets(s.readLock(), longest)
	require.Equal(s, driver.HeldForClaim, w.misses().Reason)
	require.Equal(s, "w", r.misses().Holder)
	s.javaGets(s.other.ReadLock(s.key), longest)
	require.False(s, s.javaUnlocks(s.readLock()))
	require.True(s, s.javaUnlocks(s.other.ReadLock(s.key)))
	require.LessOrEqual(s, r.misses().Left, driver.WantedFor(longest))
	w.take()
	require.True(s, w.release(driver.After{}))
	r.take()
	require.True(s, r.release(driver.After{}))
}

// Java's RReadWriteLock would not notice the RLock, but we do.
func rLockKeepsUsOut(s *shared) {
	s.javaTakes(longest)
	for _, c := range []*claimant{s.reads("r"), s.writes("w")} {
		require.Equal(s, s.java.Lock(s.key).Field(1), c.misses().Label)
	}
	s.javaReleases()
}

// javaWaitsFor starts to wait as a thread, and returns when that thread sleeps until it is
// notified.
func (s *shared) javaWaitsFor(lock *redissontest.Lock, thread int64) <-chan javaOutcome {
	s.Helper()
	before, done := lock.Waiting(), make(chan javaOutcome, 1)
	go func() {
		wait, err := lock.Lock(s.Context(), thread, longest)
		done <- javaOutcome{wait, err, time.Now()}
	}()
	require.Eventually(s, func() bool { return lock.Waiting() == before+1 }, soon, step)
	return done
}

// requireJavaGot waits until Java has the lock, after one message, and releases it.
func (s *shared) requireJavaGot(done <-chan javaOutcome, lock *redissontest.Lock, thread int64) {
	s.Helper()
	select {
	case got := <-done:
		require.NoError(s, got.err)
		require.Equal(s, redissontest.Wait{Tries: 3, ByMessage: 1}, got.wait)
		_, err := lock.Unlock(s.Context(), thread)
		require.NoError(s, err)
	case <-time.After(soon):
		require.FailNow(s, "Java sleeps on")
	}
}

func ourWriterWakesReaders(s *shared) {
	w, lock := s.writes("w"), s.other.ReadLock(s.key)
	w.take()
	first, second := s.javaWaitsFor(lock, 7), s.javaWaitsFor(lock, 8)
	require.True(s, w.release(driver.After{}))
	require.Eventually(s, func() bool { return lock.Waiting() == 0 }, soon, step, "both are notified")
	s.requireJavaGot(first, lock, 7)
	s.requireJavaGot(second, lock, 8)
	require.Equal(s, "1", s.other.Messages()[0].Payload)
}

func ourWriterWakesWriter(s *shared) {
	w, lock := s.writes("w"), s.other.WriteLock(s.key)
	w.take()
	done := s.javaWaitsFor(lock, 7)
	require.True(s, w.release(driver.After{}))
	s.requireJavaGot(done, lock, 7)
}

func keptByWriter(s *shared) { kept(s, s.writes("w")) }

func keptByReader(s *shared) { kept(s, s.reads("r")) }

func kept(s *shared, c *claimant) {
	c.take()
	done := s.javaWaitsFor(s.other.WriteLock(s.key), 7)
	start := time.Now()
	require.True(s, c.release(driver.After{Keep: ttl}))
	select {
	case got := <-done:
		require.NoError(s, got.err)
		require.Equal(s, 1, got.wait.ByMessage)
		require.Positive(s, got.wait.ByTTL)
		require.Greater(s, got.at.Sub(start), ttl-10*time.Millisecond)
	case <-time.After(soon):
		require.FailNow(s, "Java sleeps on")
	}
	_, err := s.other.WriteLock(s.key).Unlock(s.Context(), 7)
	require.NoError(s, err)
}

func ourLastReaderWakes(s *shared) {
	first, second, lock := s.reads("a"), s.reads("b"), s.other.WriteLock(s.key)
	first.take()
	second.take()
	done := s.javaWaitsFor(lock, 7)
	require.True(s, first.release(driver.After{}))
	s.javaMisses(s.writeLock())
	require.Empty(s, s.other.Messages())
	require.True(s, second.release(driver.After{}))
	s.requireJavaGot(done, lock, 7)
	require.Equal(s, "0", s.other.Messages()[0].Payload)
}

// weWaitFor starts to wait for the key, and returns when we listen and ask no more.
func (s *shared) weWaitFor(opts ...guard.Option) <-chan outcome {
	s.Helper()
	done, _ := s.weWait(newGuardOver(s, append([]guard.Option{guard.WithTTL(longest)}, opts...)...))
	return done
}

func javaReaderWakesUs(s *shared) {
	s.javaGets(s.readLock(), longest)
	done := s.weWaitFor()
	require.True(s, s.javaUnlocks(s.readLock()))
	requireIn(s, done)
}

func javaWriterWakesUs(s *shared) {
	s.javaGets(s.writeLock(), longest)
	done := s.weWaitFor(guard.WithShared())
	require.True(s, s.javaUnlocks(s.writeLock()))
	requireIn(s, done)
}

// Redisson publishes nothing if the writer stays as a reader.
func silentDowngrade(s *shared) {
	const brief = 2 * time.Second // half of which is longer than a message takes
	s.javaGets(s.writeLock(), longest)
	s.javaGets(s.readLock(), longest)
	done := waits(s.T, newGuardOver(s, guard.WithTTL(brief), guard.WithShared()), s.key)
	s.requireListener()
	require.True(s, s.javaUnlocks(s.writeLock()))
	requireIn(s, done)
	require.True(s, s.javaUnlocks(s.readLock()))
}

func givingUpWakes(s *shared) {
	w := s.writes("w")
	w.claim.Queue = driver.Retried
	s.javaGets(s.readLock(), longest)
	require.Equal(s, driver.HeldForClaim, w.misses().Reason)
	done := s.weWaitFor(guard.WithShared())
	require.False(s, w.release(driver.After{}))
	requireIn(s, done)
	require.True(s, s.javaUnlocks(s.readLock()))
}
