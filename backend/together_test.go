package backend_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// lockKeys name the Redis key that a backend has for a key.
var lockKeys = map[string]func(key string) string{
	"single":    func(key string) string { lease, _ := redisstore.LeaseKeys(key); return lease },
	"reentrant": func(key string) string { return key },
}

// eachTogether runs a test on each backend with a server of its own.
func eachTogether(t *testing.T, test func(t *testing.T, f *batcher, rdb *redis.Client, lockKey func(string) string)) {
	for name := range backends {
		t.Run(name, func(t *testing.T) {
			f, rdb := newBatcher(t, name)
			test(t, f, rdb, lockKeys[name])
		})
	}
}

// newBatcher returns a batcher of a backend on a server of its own, and a client of that server.
func newBatcher(t *testing.T, backend string) (*batcher, *redis.Client) {
	t.Helper()
	server := redistest.Start(t)
	return batcherOn(server.Client(t), backends[backend]), server.Client(t)
}

func TestTogether_aKeyOfAWrongTypeFailsAlone(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, rdb *redis.Client, lockKey func(string) string) {
		require.NoError(t, rdb.RPush(t.Context(), lockKey("key7"), "somebody's").Err())
		for range 2 { // the second time there are fence counters
			for i, a := range f.together(t, many(20, func(key string) op { return take(key, "id") })...) {
				if i == 7 {
					require.Equal(t, driver.KindWrongType, a.kind(t))
					require.ErrorContains(t, a.err, `acquire "key7"`)
					continue
				}
				require.NoError(t, a.err)
				require.Equal(t, driver.Granted, a.grant.State)
			}
			answers, _ := f.send(t, many(20, func(key string) op { return give(key, "id") })...)
			for i, a := range answers {
				require.NoError(t, a.err)
				require.Equal(t, i != 7, a.held, "a key of another type is no lease")
			}
		}
		require.EqualValues(t, 1, rdb.LLen(t.Context(), lockKey("key7")).Val(), "what is not ours stays")
		held, err := f.locker.Release(t.Context(), claim("key7", "id"), driver.After{})
		require.NoError(t, err)
		require.False(t, held, "as it is if the call is alone")
		held, err = f.locker.Renew(t.Context(), claim("key7", "id"))
		require.NoError(t, err)
		require.False(t, held, "the lease is lost at once")
	})
}

func TestTogether_aFullServerRefusesClaimsAndTakesReleasesAndRenewals(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, rdb *redis.Client, lockKey func(string) string) {
		for _, a := range f.together(t, many(20, func(key string) op { return take(key, "id") })...) {
			require.NoError(t, a.err)
		}
		for _, a := range f.together(t, many(20, func(key string) op { return take("new"+key, "id") })...) {
			require.NoError(t, a.err)
		}
		// their fence counters stay
		f.together(t, many(20, func(key string) op { return give("new"+key, "id") })...)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())

		kept, done := give("key2", "id"), give("key3", "id")
		kept.after = driver.After{Keep: time.Hour}
		done.after = driver.After{Keep: time.Hour, Done: true, Record: []byte("record")}
		ops := []op{give("key0", "id"), give("key1", "another"), kept, done, take("key4", "another")}
		ops = append(ops, many(20, func(key string) op { return take("new"+key, "id") })...)
		renewed := make(chan error, 1)
		go func() {
			held, err := f.locker.Renew(context.Background(), claim("key5", "id"))
			if err == nil && !held {
				err = guard.ErrLost
			}
			renewed <- err
		}()
		answers, _ := f.send(t, ops...)
		require.NoError(t, <-renewed)
		for i, held := range []bool{true, false, true, true} {
			require.NoError(t, answers[i].err, i)
			require.Equal(t, held, answers[i].held, i)
		}
		require.NoError(t, answers[4].err, "a busy key is answered all the same")
		require.Equal(t, driver.Busy, answers[4].grant.State)
		for _, a := range answers[5:] {
			require.Equal(t, driver.KindOOM, a.kind(t))
		}
		require.Zero(t, rdb.Exists(t.Context(), lockKey("key0"), lockKey("newkey0"), lockKey("newkey19")).Val())
		grant, err := f.locker.TryAcquire(t.Context(), claim("key3", "another"))
		require.NoError(t, err)
		require.Equal(t, driver.Done, grant.State)
		require.Equal(t, "record", string(grant.Record))
	})
}

func TestTogether_aServerThatRestartedRefusesClaimsAndTakesReleases(t *testing.T) {
	t.Parallel()
	for name, open := range cautious {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			before := batcherOn(server.Client(t), backends[name])
			before.together(t, take("key0", "id"), take("key1", "id"), take("a", "id"))
			f := batcherOn(server.Client(t), func(rdb redis.UniversalClient) guard.Locker { return open(rdb, time.Hour) })
			answers, _ := f.send(t, take("key1", "another"), take("key2", "id"), take("key3", "id"), give("key0", "id"))
			require.NoError(t, answers[0].err)
			require.Equal(t, driver.Busy, answers[0].grant.State)
			require.Equal(t, driver.KindRestarted, answers[1].kind(t))
			require.Equal(t, driver.KindRestarted, answers[2].kind(t))
			require.NoError(t, answers[3].err)
			require.True(t, answers[3].held)
		})
	}
}

func TestTogether_sendsAForgottenScriptAgain(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, rdb *redis.Client, _ func(string) string) {
		for range 3 {
			for _, of := range []func(key string) op{
				func(key string) op { return take(key, "id") }, func(key string) op { return give(key, "id") },
			} {
				require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
				answers, sizes := f.send(t, many(20, of)...)
				require.GreaterOrEqual(t, len(sizes), 2, "one was refused, and came again: %v", sizes)
				for _, a := range answers {
					require.NoError(t, a.err)
					require.True(t, a.held || a.grant.State == driver.Granted && !a.grant.Held)
				}
			}
		}
	})
}

func TestTogether_twoReleasesOfOneClaimAreOneThatHadItAndOneThatHadNot(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, _ *redis.Client, _ func(string) string) {
		f.together(t, take("a", "id"), take("b", "id"))
		answers, _ := f.send(t, give("b", "id"), give("a", "id"), give("a", "another"), give("a", "id"))
		for i, held := range []bool{true, true, false, false} {
			require.NoError(t, answers[i].err)
			require.Equal(t, held, answers[i].held, i)
		}
	})
}

func TestTogether_oneOfManyClaimsGetsAFreeKey(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, _ *redis.Client, _ func(string) string) {
		last := uint64(0)
		for round := range 3 { // the first one has no fence counter
			answers, _ := f.send(t, take("k", "a"), take("k", "b"), take("k", "a"), take("k", "c"))
			require.Equal(t, driver.Granted, answers[0].grant.State)
			require.False(t, answers[0].grant.Held, round)
			require.Greater(t, answers[0].grant.Fence, last)
			last = answers[0].grant.Fence
			require.Equal(t, driver.Answer{State: driver.Granted, Fence: last, Held: true}, answers[2].grant, "it asked twice")
			for _, i := range []int{1, 3} {
				require.Equal(t, driver.Busy, answers[i].grant.State, i)
			}
			f.send(t, give("k", "a"))
		}
	})
}

func TestTogether_aClusterThatLooksLikeOneServerGetsOneScriptARequest(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t)
	node := cluster.Nodes[0]
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			f := batcherOn(node.Client(t), backend)
			owned := ownedBy(t, f.locker)
			var takes, gives []op
			for _, key := range owned {
				takes, gives = append(takes, take(key, "id")), append(gives, give(key, "id"))
			}
			for i, ops := range [][]op{takes, gives, takes, gives} {
				answers, sizes := f.send(t, ops...)
				total := 0
				for _, n := range sizes {
					total += n
				}
				if i > 0 {
					require.Equal(t, len(ops), total, "nothing is tried together any more")
				} else {
					require.Greater(t, total, len(ops))
				}
				for _, a := range answers {
					require.NoError(t, a.err)
					require.True(t, a.held || a.grant.State == driver.Granted && !a.grant.Held)
				}
			}
		})
	}
}

func TestTogether_aClaimBehindAReleaseOfItsKeyFindsItFree(t *testing.T) {
	t.Parallel()
	eachTogether(t, func(t *testing.T, f *batcher, _ *redis.Client, _ func(string) string) {
		untilTogether(t, func(round int) []int {
			k, other := fmt.Sprint("k", round), fmt.Sprint("other", round)
			answers, _ := f.send(t, take(k, "a"), take(other, "a"))
			require.Equal(t, driver.Granted, answers[0].grant.State)
			answers, sizes := f.send(t,
				take(k, "before"), give(k, "a"), take(k, "b"), give(k, "b"), take(k, "c"), take(fmt.Sprint("further", round), "a"), give(other, "a"))
			require.Equal(t, driver.Busy, answers[0].grant.State)
			require.True(t, answers[1].held)
			require.Equal(t, driver.Granted, answers[2].grant.State)
			require.True(t, answers[3].held)
			require.Equal(t, driver.Granted, answers[4].grant.State)
			require.Equal(t, driver.Granted, answers[5].grant.State)
			require.True(t, answers[6].held)
			return sizes
		}, 5) // scripts in one pipeline, as the calls of a key stay in their order
	})
}

func TestTogether_aUserNeedsNoFurtherRights(t *testing.T) {
	t.Parallel()
	for name, backend := range backends {
		for _, denied := range [][]any{{"-mget", "-mset"}, {"-mget"}, {"-mset"}} {
			t.Run(fmt.Sprint(name, denied), func(t *testing.T) { testWithoutRights(t, backend, denied) })
		}
	}
}

func testWithoutRights(t *testing.T, backend func(redis.UniversalClient) guard.Locker, denied []any) {
	server := redistest.Start(t)
	all := server.Client(t)
	rights := []any{"ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all"}
	require.NoError(t, all.Do(t.Context(), append(rights, denied...)...).Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	f := batcherOn(rdb, backend)
	takes := many(10, func(key string) op { return take(key, "id") })
	gives := many(10, func(key string) op { return give(key, "id") })
	send := func(ops []op) []int {
		for _, counter := range all.Keys(t.Context(), "onerun:*:fence").Val() {
			longAgo(t, all, counter) // new ones are ahead of the clock
		}
		answers, sizes := f.send(t, ops...)
		for _, a := range answers {
			require.NoError(t, a.err)
			require.True(t, a.held || a.grant.State == driver.Granted && !a.grant.Held)
		}
		return sizes
	}
	send(takes)
	send(gives) // from here on, the server knows the scripts
	untilTogether(t, func(int) []int { return append(send(takes), send(gives)...) }, 1, 1)
}

// untilTogether calls send until it reports that many commands at a time. If the machine pauses, a
// batch goes out without some of its calls (see lateAfter), so send has several tries.
func untilTogether(t *testing.T, send func(round int) []int, want ...int) {
	t.Helper()
	var sizes []int
	for round := range 10 {
		if sizes = send(round); slices.Equal(sizes, want) {
			return
		}
	}
	require.Equal(t, want, sizes, "commands at a time")
}

// ownedBy returns keys of several slots that the node behind a locker has.
func ownedBy(t *testing.T, l guard.Locker) (owned []string) {
	t.Helper()
	for i := 0; len(owned) < 10; i++ {
		key := fmt.Sprint("key", i)
		grant, err := l.TryAcquire(t.Context(), claim(key, "probe"))
		if err != nil {
			require.True(t, strings.Contains(err.Error(), "MOVED") || strings.Contains(err.Error(), "moved"), "%v", err)
			continue
		}
		require.Equal(t, driver.Granted, grant.State)
		held, err := l.Release(t.Context(), claim(key, "probe"), driver.After{})
		require.NoError(t, err)
		require.True(t, held)
		owned = append(owned, key)
	}
	return owned
}
