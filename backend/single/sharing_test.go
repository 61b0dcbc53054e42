package single_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A sharedKey is the key "k" of a server, which several claims share.
type sharedKey struct {
	t      *testing.T
	server *redistest.Server
	rdb    *redis.Client
	l      *single.Locker
	ttl    time.Duration
	clock  *clocktest.Clock // of newClockedKey
}

func newSharedKey(t *testing.T, opts ...single.Option) *sharedKey {
	server := redistest.Start(t)
	return &sharedKey{t, server, server.Client(t), single.New(server.Client(t), opts...), time.Minute, nil}
}

// newClockedKey returns such a key on a server with a clock of its own.
func newClockedKey(t *testing.T) *sharedKey {
	server, clock := redistest.StartWithClock(t)
	return &sharedKey{t, server, server.Client(t), single.New(server.Client(t)), time.Minute, clock}
}

func (k *sharedKey) claim(id string, maxHolders int) driver.Claim {
	return driver.Claim{Key: "k", ID: id, Owner: id, TTL: k.ttl, Label: "label of " + id, MaxHolders: maxHolders}
}

func (k *sharedKey) try(c driver.Claim) driver.Answer {
	k.t.Helper()
	g, err := k.l.TryAcquire(k.t.Context(), c)
	require.NoError(k.t, err)
	return g
}

// take acquires the key for claims of those IDs, which share it.
func (k *sharedKey) take(maxHolders int, ids ...string) {
	k.t.Helper()
	for _, id := range ids {
		require.Equal(k.t, driver.Granted, k.try(k.claim(id, maxHolders)).State, id)
	}
}

func (k *sharedKey) requireBusy(c driver.Claim) driver.Answer {
	k.t.Helper()
	g := k.try(c)
	require.Equal(k.t, driver.Busy, g.State)
	require.Positive(k.t, g.Left)
	return g
}

func (k *sharedKey) renews(id string, maxHolders int) bool {
	k.t.Helper()
	held, err := k.l.Renew(k.t.Context(), k.claim(id, maxHolders))
	require.NoError(k.t, err)
	return held
}

func (k *sharedKey) releases(id string, maxHolders int) bool {
	k.t.Helper()
	held, err := k.l.Release(k.t.Context(), k.claim(id, maxHolders), driver.After{})
	require.NoError(k.t, err)
	return held
}

// redisKey returns the one Redis key of that kind: lease, holders, limits or wanted.
func (k *sharedKey) redisKey(kind string) string {
	k.t.Helper()
	keys, err := k.rdb.Keys(k.t.Context(), "onerun:*:"+kind+":k").Result()
	require.NoError(k.t, err)
	require.Len(k.t, keys, 1)
	return keys[0]
}

// requireNothing asserts that only the fence counter is left.
func (k *sharedKey) requireNothing() {
	k.t.Helper()
	keys, err := k.rdb.Keys(k.t.Context(), "*").Result()
	require.NoError(k.t, err)
	require.Len(k.t, keys, 1, "%v", keys)
}

func TestSharing_leavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(k *sharedKey){
		"released": func(k *sharedKey) {
			require.True(t, k.releases("a", 2))
			require.True(t, k.releases("b", driver.Unlimited))
		},
		"expired": func(k *sharedKey) {
			k.clock.Jump(k.ttl)
			require.Eventually(t, func() bool { return k.rdb.DBSize(t.Context()).Val() == 1 }, settled, time.Millisecond)
		},
		"wanted, then granted": func(k *sharedKey) {
			writer := k.claim("writer", 1)
			writer.Queue = driver.Retried
			require.Equal(t, driver.HeldForClaim, k.requireBusy(writer).Reason)
			writer.Repeated = true
			require.True(t, k.releases("a", 2))
			require.True(t, k.releases("b", driver.Unlimited))
			require.Equal(t, driver.Granted, k.try(writer).State)
			require.True(t, k.releases("writer", 1))
		},
		"wanted, then released": func(k *sharedKey) {
			other := k.claim("other", 2)
			other.Queue = driver.Retried
			require.Equal(t, driver.HeldForClaim, k.requireBusy(other).Reason)
			require.False(t, k.releases("other", 2))
			require.True(t, k.releases("a", 2))
			require.True(t, k.releases("b", driver.Unlimited))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newSharedKey(t)
			if name == "expired" {
				k = newClockedKey(t)
			}
			k.take(2, "a")
			k.take(driver.Unlimited, "b")
			keys, err := k.rdb.Keys(t.Context(), "*:k").Result()
			require.NoError(t, err)
			require.Len(t, keys, 3)
			for _, key := range keys {
				require.Positive(t, k.rdb.PTTL(t.Context(), key).Val(), key)
			}
			leave(k)
			k.requireNothing()
		})
	}
}

// A Guard says which claims the store may know: what was kept for one that waited is removed.
func TestSharing_aWriterThatWaitedLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	for name, fair := range map[string][]guard.Option{"": nil, "WithFair": {guard.WithFair()}} {
		for _, gives := range []string{"up", "in"} {
			t.Run(name+" gives "+gives, func(t *testing.T) {
				k := newSharedKey(t)
				k.take(driver.Unlimited, "reader")
				g, err := guard.New(k.l, guard.WithTTL(time.Minute))
				require.NoError(t, err)
				t.Cleanup(func() { _ = g.Close(t.Context()) })
				ctx, giveUp := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					ended <- g.Do(ctx, "k", func(context.Context) error { return nil }, append(fair, guard.WithWait(time.Minute))...)
				}()
				require.Eventually(t, func() bool {
					return len(k.rdb.Keys(t.Context(), "onerun:*:wanted:k").Val()) == 1
				}, settled, time.Millisecond)
				if gives == "up" {
					giveUp()
					require.ErrorIs(t, <-ended, context.Canceled)
				}
				require.True(t, k.releases("reader", driver.Unlimited))
				if gives == "in" {
					require.NoError(t, <-ended)
				}
				giveUp()
				require.Eventually(t, func() bool { return k.rdb.DBSize(t.Context()).Val() == 1 }, settled, time.Millisecond)
				k.take(driver.Unlimited, "reader")
			})
		}
	}
}

// The holders expire by their own times, whatever the TTLs of the keys are.
func TestSharing_expiresAlthoughTheKeysWerePersisted(t *testing.T) {
	t.Parallel()
	k := newClockedKey(t)
	k.take(2, "a", "b")
	waits := k.claim("c", 1)
	waits.Queue = driver.Retried
	require.Equal(t, driver.HeldForClaim, k.requireBusy(waits).Reason)
	for _, kind := range []string{"lease", "holders", "limits", "wanted"} {
		require.True(t, k.rdb.Persist(t.Context(), k.redisKey(kind)).Val(), kind)
	}
	k.clock.Jump(k.ttl + 20*time.Millisecond)
	require.False(t, k.renews("a", 2))
	require.False(t, k.releases("b", 2))
	k.take(driver.Unlimited, "d")
	require.Positive(t, k.rdb.PTTL(t.Context(), k.redisKey("lease")).Val())
}

func TestSharing_manyHoldersThatExpireTogetherAreRemovedInParts(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	k.take(driver.Unlimited, "stays")
	k.ttl = time.Minute // none ends while the others are taken
	for i := range 2500 {
		k.take(driver.Unlimited, fmt.Sprint("dies", i))
	}
	lease := k.redisKey("lease")
	members, err := k.rdb.ZRange(t.Context(), lease, 0, -1).Result()
	require.NoError(t, err)
	for _, id := range members { // as if their time had passed
		if id != "stays" {
			require.NoError(t, k.rdb.ZAdd(t.Context(), lease, redis.Z{Score: 1, Member: id}).Err())
		}
	}
	for _, count := range []int64{1501, 501, 1} {
		require.False(t, k.renews("dies7", driver.Unlimited))
		require.Equal(t, count, k.rdb.ZCard(t.Context(), lease).Val())
		require.Equal(t, count, k.rdb.ZCard(t.Context(), k.redisKey("limits")).Val())
		require.Equal(t, count, k.rdb.HLen(t.Context(), k.redisKey("holders")).Val())
	}
	require.True(t, k.renews("stays", driver.Unlimited))
}

// What others did to the keys never lets too many claims hold the key.
func TestSharing_staysSafeIfKeysAreChangedByHand(t *testing.T) {
	t.Parallel()
	type state = func(k *sharedKey)
	for name, c := range map[string]struct{ change, then state }{
		"the lease is deleted": {
			func(k *sharedKey) { k.rdb.Del(t.Context(), k.redisKey("lease")) },
			func(k *sharedKey) {
				require.False(t, k.renews("a", 2))
				require.False(t, k.releases("b", 2))
				k.take(3, "c", "d", "e") // the MaxHolders of a and b is forgotten with them
				require.Equal(t, 3, k.try(k.claim("e", 3)).Seat)
			},
		},
		"limits is deleted": {
			func(k *sharedKey) { k.rdb.Del(t.Context(), k.redisKey("limits")) },
			func(k *sharedKey) {
				require.True(t, k.renews("a", 2))
				k.requireBusy(k.claim("c", 3))
				require.True(t, k.releases("a", 2))
				k.requireBusy(k.claim("c", 3))
				require.True(t, k.releases("b", 2))
				k.take(3, "c", "d", "e")
			},
		},
		"holders is deleted": {
			func(k *sharedKey) { k.rdb.Del(t.Context(), k.redisKey("holders")) },
			func(k *sharedKey) {
				require.False(t, k.renews("a", 2), "it is not known whether it was released")
				require.Equal(t, driver.Busy, k.try(k.claim("a", 2)).State)
				k.requireBusy(k.claim("c", 3))
				require.True(t, k.releases("a", 2))
				require.True(t, k.releases("b", 2))
				k.take(1, "c")
			},
		},
		"a foreign value is in holders": {
			func(k *sharedKey) { k.rdb.HSet(t.Context(), k.redisKey("holders"), "a", "foreign") },
			func(k *sharedKey) {
				require.False(t, k.renews("a", 2))
				require.Empty(t, k.requireBusy(k.claim("c", 2)).Label)
				require.True(t, k.renews("b", 2))
				require.True(t, k.releases("a", 2))
				k.take(2, "c")
			},
		},
		"wanted has another type": {
			func(k *sharedKey) {
				waits := k.claim("w", 1)
				waits.Queue = driver.Retried
				k.requireBusy(waits)
				wanted := k.redisKey("wanted")
				k.rdb.Del(t.Context(), wanted)
				k.rdb.LPush(t.Context(), wanted, "foreign")
			},
			func(k *sharedKey) {
				require.True(t, k.releases("a", 2))
				k.take(2, "c")
				waits := k.claim("w", 1)
				waits.Queue = driver.Retried
				require.Equal(t, driver.HeldForClaim, k.requireBusy(waits).Reason, "it takes its place")
				require.True(t, k.releases("c", 2))
				k.requireBusy(k.claim("d", 2))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newSharedKey(t)
			k.take(2, "a", "b")
			c.change(k)
			c.then(k)
		})
	}
}

func TestSharing_saysThatTheKeyHoldsSomethingElse(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	lease := leaseKey(t, k.rdb, "k")
	require.NoError(t, k.rdb.HSet(t.Context(), lease, "field", "value").Err())
	for i, maxHolders := range []int{1, 2, 1} {
		for _, queue := range []driver.QueueMode{driver.Unqueued, driver.Queued} {
			c := k.claim("a", maxHolders)
			c.Queue, c.Repeated = queue, i == 2
			_, err := k.l.TryAcquire(t.Context(), c)
			var failed *guard.StoreError
			require.ErrorAs(t, err, &failed)
			require.Equal(t, driver.KindWrongType, failed.Kind)
			held, err := k.l.Release(t.Context(), c, driver.After{})
			require.NoError(t, err)
			require.False(t, held)
		}
		require.False(t, k.renews("a", maxHolders))
	}
}

func TestSharing_isServedByAServerWhoseMemoryIsFull(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	k.take(3, "a", "b")
	require.NoError(t, k.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := k.l.TryAcquire(t.Context(), k.claim("c", 3))
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindOOM, failed.Kind)
	waits := k.claim("w", 1)
	waits.Queue = driver.Retried
	require.NotEqual(t, driver.HeldForClaim, k.requireBusy(waits).Reason, "it is refused, although it cannot be noted")
	require.True(t, k.try(k.claim("a", 3)).Held)
	require.True(t, k.renews("a", 3))
	raised := k.claim("b", 3)
	raised.Fence = 1 << 60 >> 8
	held, err := k.l.Renew(t.Context(), raised)
	require.NoError(t, err)
	require.True(t, held)
	held, err = k.l.Release(t.Context(), k.claim("b", 3), driver.After{Keep: time.Minute})
	require.NoError(t, err)
	require.True(t, held)
	require.True(t, k.releases("a", 3))
	k.requireBusy(k.claim("d", 1))
}

// The clock of the server is set back: the holders expire later, and nobody else gets in.
func TestSharing_staysHeldIfTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	k := newClockedKey(t)
	fence := k.try(k.claim("a", 2)).Fence
	k.take(driver.Unlimited, "b")
	k.clock.Jump(-time.Hour)
	require.Greater(t, k.requireBusy(k.claim("c", 2)).Left, 59*time.Minute)
	require.True(t, k.renews("a", 2))
	require.LessOrEqual(t, k.requireBusy(k.claim("c", 2)).Left, time.Minute)
	require.True(t, k.releases("a", 2))
	g := k.try(k.claim("d", 2))
	require.Equal(t, driver.Granted, g.State)
	require.Greater(t, g.Fence, fence)
	k.clock.Jump(2 * time.Hour)
	k.take(1, "e")
}

// A release wakes waiters only if one of them may be granted.
func TestSharing_publishesReleasesThatMatter(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	channel, _ := redisstore.LeaseKeys("k")
	published := redistest.Listen(t, k.rdb, channel)
	release := func(maxHolders int, ids ...string) int {
		for _, id := range ids {
			require.True(t, k.releases(id, maxHolders), id)
		}
		return published()
	}

	k.take(driver.Unlimited, "a", "b", "c")
	require.Zero(t, release(driver.Unlimited, "a"), "others read on, and anybody might join them")
	require.Equal(t, 1, release(driver.Unlimited, "b", "c"), "nobody is left")

	k.take(3, "a", "b", "c")
	require.Equal(t, 1, release(3, "a"), "one more may come")
	require.Equal(t, 2, release(3, "b", "c"))

	k.take(driver.Unlimited, "a", "b", "c", "d")
	writer := k.claim("w", 1)
	writer.Queue = driver.Retried
	require.Equal(t, driver.HeldForClaim, k.requireBusy(writer).Reason)
	require.Zero(t, release(driver.Unlimited, "a", "b"), "the writer waits for all of them")
	writer.Repeated = true
	held, err := k.l.Release(t.Context(), writer, driver.After{})
	require.NoError(t, err)
	require.False(t, held)
	require.Equal(t, 1, published(), "readers were refused")
	require.Equal(t, driver.HeldForClaim, k.requireBusy(writer).Reason)
	require.Equal(t, 1, release(driver.Unlimited, "c", "d"))
	require.Equal(t, driver.Granted, k.try(writer).State)
	require.Equal(t, 1, release(1, "w"))
}

func TestSharing_startedCallsFindOutThatAKeyIsShared(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	k.take(driver.Unlimited, "a")
	type answer struct {
		grant driver.Answer
		err   error
	}
	answers := make(chan answer, 1)
	start := func(c driver.Claim) answer {
		k.l.Start(t.Context(), driver.OpAcquire, []driver.Claim{c}, driver.After{}, func(_ int, g driver.Answer, err error) { answers <- answer{g, err} })
		return <-answers
	}
	writer := k.claim("w", 1)
	require.NotEqual(t, driver.HeldForClaim, start(writer).grant.Reason)
	writer.Queue = driver.Retried
	got := start(writer)
	require.NoError(t, got.err)
	require.Equal(t, "label of a", got.grant.Label)
	require.Equal(t, driver.HeldForClaim, got.grant.Reason)
	writer.Repeated = true
	k.requireBusy(k.claim("b", driver.Unlimited))
	held, err := await(t.Context(), k.l, driver.OpRelease, writer)
	require.NoError(t, err)
	require.False(t, held)
	k.take(driver.Unlimited, "b")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = await(ended, k.l, driver.OpAcquire, writer)
	require.Error(t, err)
}

func TestSharing_claimsShareThePipelinesOfOthers(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]single.Option{"batches": nil, "WithoutBatching": {single.WithoutBatching()}} {
		t.Run(name, func(t *testing.T) {
			k := newSharedKey(t, opts...)
			const calls = 300
			use := func(i int) error {
				c := claimOf(i)
				if i%2 == 0 {
					c.MaxHolders = []int{3, driver.Unlimited}[i/2%2]
				}
				if i%10 == 0 {
					c.Key = "shared by all"
					c.MaxHolders = driver.Unlimited
				}
				if err := take(t.Context(), k.l, c); err != nil {
					return err
				}
				if held, err := k.l.Renew(t.Context(), c); !held || err != nil {
					return fmt.Errorf("renewed: %v, %w", held, err)
				}
				if held, err := k.l.Release(t.Context(), c, driver.After{}); !held || err != nil {
					return fmt.Errorf("released: %v, %w", held, err)
				}
				return nil
			}
			for _, err := range all(calls, use) { // the server learns the scripts
				require.NoError(t, err)
			}
			already := reads(t, k.rdb)
			for _, err := range all(calls, use) {
				require.NoError(t, err)
			}
			took := reads(t, k.rdb) - already
			t.Logf("%d reads for %d calls", took, 3*calls)
			require.Less(t, took, 3*calls/2)
			require.Empty(t, k.rdb.Keys(t.Context(), "onerun:*:lease:*").Val())
		})
	}
}

func TestSharing_replicasAcknowledgeIt(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t) // which has none
	rdb := server.Client(t)
	k := &sharedKey{t, server, rdb, single.New(rdb, single.WithReplicas(1, 20*time.Millisecond)), time.Minute, nil}
	_, err := k.l.TryAcquire(t.Context(), k.claim("a", 2))
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindNoReplicas, failed.Kind)
	other := &sharedKey{t, server, rdb, single.New(rdb), time.Minute, nil}
	require.Equal(t, driver.Busy, k.try(k.claim("b", 1)).State, "an answer that writes nothing needs no replica")
	require.True(t, other.releases("a", 2))
}

func TestSharing_aServerThatRestartedSharesNothing(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t, single.WithMinUptime(time.Hour))
	_, err := k.l.TryAcquire(t.Context(), k.claim("a", 2))
	var failed *guard.StoreError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, driver.KindRestarted, failed.Kind)
	require.Zero(t, k.rdb.DBSize(t.Context()).Val())
}

func TestSharing_fencesHintsAndReservesAreAsForOthers(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	counter := strings.Replace(leaseKey(t, k.rdb, "k"), "lease:k", "fence", 1)
	// a store without a counter is ahead of its clock, and reserves nothing
	require.NoError(t, k.rdb.Set(t.Context(), counter, 1, 0).Err())
	last := k.try(k.claim("a", 3))
	c := k.claim("b", 3)
	c.Fences.Hint, c.Fences.Reserve = last.Fence+1, 5
	g := k.try(c)
	require.Equal(t, c.Fences.Hint, g.Fence)
	require.Equal(t, 5, g.Reserved)
	require.Greater(t, g.Clock, g.Fence-1)
	require.Equal(t, 2, g.Seat)
	again := k.try(c)
	require.Equal(t, []any{g.Fence, 2, true, 0}, []any{again.Fence, again.Seat, again.Held, again.Reserved})
	given := k.claim("c", 3)
	given.Fence, given.Fences.Reserve = g.Fence+1000, 7
	g = k.try(given)
	require.Equal(t, given.Fence, g.Fence)
	require.Equal(t, 7, g.Reserved)
	require.True(t, k.releases("a", 3))
	require.Greater(t, k.try(k.claim("d", 3)).Fence, given.Fence+7)
}

// The next waiter is notified when one was granted, if they may share the key.
func TestSharing_readersEnterTogetherFromTheQueue(t *testing.T) {
	t.Parallel()
	k := newSharedKey(t)
	queued := func(id string, maxHolders int) driver.Claim {
		c := k.claim(id, maxHolders)
		c.Queue = driver.Queued
		return c
	}
	require.Equal(t, driver.Granted, k.try(queued("holder", 1)).State)
	readers := []string{"a", "b", "c"}
	notified := map[string]chan time.Duration{}
	for _, id := range readers {
		calls := make(chan time.Duration, 100)
		notified[id] = calls
		stop := k.l.Subscribe("k", id, func(in time.Duration) { calls <- in })
		defer stop()
		require.Zero(t, <-calls)
		require.Equal(t, driver.Busy, k.try(queued(id, driver.Unlimited)).State)
	}
	_, err := k.l.Release(t.Context(), queued("holder", 1), driver.After{})
	require.NoError(t, err)
	for _, id := range readers {
		require.Eventually(t, func() bool { return <-notified[id] == 0 }, settled, time.Microsecond, id)
		require.Equal(t, driver.Granted, k.try(queued(id, driver.Unlimited)).State)
	}
}
