package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// memberEnv makes the test binary a member of a fleet: it holds the role.
	memberEnv = "ONERUN_BENCH_MEMBER"
	// fleetEnv is for how long TestLong_mixedFleets runs.
	fleetEnv = "ONERUN_FLEET"
)

// prefix is that of rueidislock. The name of its first key is the name of all locks here.
const prefix = "rueidislock:0:"

// early begins the kind of a member that releases the lock before its work. Its overlaps are its
// fault.
const early = "early "

// openMember returns how a member takes the lock "report": by the library of its kind, or by ours
// in the place of it.
func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	if kind, ok := strings.CutPrefix(role.Kind, early); ok {
		role.Kind = kind
		acquire, err := openMember(role)
		return func(ctx context.Context) (fleettest.Lock, error) {
			lock, err := acquire(ctx)
			if err == nil {
				err = lock.Release()
				lock.Release = func() error { return nil }
			}
			return lock, err
		}, err
	}
	var rdb *redis.Client
	var clients []*redis.Client
	for _, addr := range role.Addrs {
		rdb = redis.NewClient(&redis.Options{Addr: addr})
		clients = append(clients, rdb)
	}
	if acquire, err := openLanguageMember(role.Kind, rdb); acquire != nil || err != nil {
		return acquire, err
	}
	switch role.Kind {
	case "redsync", "redsync on 3":
		return redsyncMember(clients), nil
	case "redislock":
		client := redislock.New(rdb)
		often := &redislock.Options{RetryStrategy: redislock.LinearBackoff(16 * time.Millisecond), Metadata: "fleet"}
		return func(ctx context.Context) (fleettest.Lock, error) {
			lock, err := client.Obtain(ctx, prefix+"report", fleettest.TTL, often)
			return fleettest.Lock{Release: func() error { return lock.Release(context.Background()) }}, err
		}, nil
	case "rueidislock":
		return rueidislockMember(role.Addrs, 1)
	case "rueidislock of 3":
		return rueidislockMember(role.Addrs, 2) // of three keys, the default
	}
	return onerunMember(role.Kind, clients)
}

func redsyncMember(clients []*redis.Client) fleettest.Acquire {
	var pools []redsyncredis.Pool
	for _, rdb := range clients {
		pools = append(pools, goredis.NewPool(rdb))
	}
	rs := redsync.New(pools...)
	return func(ctx context.Context) (fleettest.Lock, error) {
		m := rs.NewMutex(prefix+"report", redsync.WithExpiry(fleettest.TTL))
		err := m.LockContext(ctx)
		return fleettest.Lock{Release: func() error { _, err := m.Unlock(); return err }}, err
	}
}

func rueidislockMember(addrs []string, majority int32) (fleettest.Acquire, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: addrs}, KeyValidity: fleettest.TTL, KeyMajority: majority,
	})
	return func(trying context.Context) (fleettest.Lock, error) {
		// The lock ends with the context that asked for it, and its keys expire at the deadline of
		// that context, if it has one.
		ctx, cancel := context.WithCancel(context.WithoutCancel(trying))
		giveUp := context.AfterFunc(trying, cancel)
		lock, release, err := l.WithContext(ctx, "report")
		if err != nil {
			return fleettest.Lock{}, err
		}
		if !giveUp() {
			release()
			return fleettest.Lock{}, trying.Err()
		}
		return fleettest.Lock{
			Release: func() error { release(); return nil },
			Held:    func() (bool, string) { return lock.Err() == nil, fmt.Sprint("its context: ", lock.Err()) },
		}, nil
	}, err
}

// onerunMember uses ours in the place of the other libraries.
func onerunMember(kind string, clients []*redis.Client) (fleettest.Acquire, error) {
	name := func(key string) string { return prefix + key }
	keys := []string{"report"}
	if kind == "onerun of 3" {
		name = func(key string) string { return "rueidislock:" + key }
		keys = []string{"0:report", "1:report", "2:report"}
	}
	var nodes []guard.Locker
	for _, rdb := range clients {
		nodes = append(nodes, single.New(rdb, single.WithPlainKeys(name)))
	}
	locker := nodes[0]
	if len(nodes) > 1 {
		locker = redlock.New(nodes)
	}
	g, err := guard.New(locker, guard.WithTTL(fleettest.TTL), guard.WithWait(guard.Forever))
	return func(ctx context.Context) (fleettest.Lock, error) {
		l, err := g.AcquireAll(ctx, keys)
		if err != nil {
			return fleettest.Lock{}, err
		}
		return fleettest.Lock{
			Fence:   l.Fence(),
			Release: func() error { return l.Release(context.Background()) },
			Held: func() (bool, string) {
				var values []string
				for _, rdb := range clients {
					for _, key := range keys {
						values = append(values, valueAt(rdb, name(key)))
					}
				}
				return leased(values, l.Fence()), fmt.Sprintf("%q", values)
			},
		}, nil
	}, err
}

// valueAt returns the value of a Redis key, and for how long the key lasts.
func valueAt(rdb *redis.Client, name string) string {
	ctx := context.Background()
	value, err := rdb.Get(ctx, name).Result()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s\n%s", value, rdb.PTTL(ctx, name).Val())
}

// leased reports whether most of the values are leases of ours with that fence. The other libraries
// need most of the keys as well, so they do not hold the lock then.
func leased(values []string, fence uint64) bool {
	n := 0
	for _, value := range values {
		lines := strings.Split(value, "\n")
		if strings.HasPrefix(value, "onerun:H") && lines[1] == strconv.FormatUint(fence, 10) {
			n++
		}
	}
	return n > len(values)/2
}

// mixedFleets are the kinds of members that share a lock: old libraries, and ours.
var mixedFleets = map[string][]string{
	"one name":    {"redsync", "redislock", "rueidislock", "onerun", "onerun"},
	"three names": {"rueidislock of 3", "rueidislock of 3", "onerun of 3", "onerun of 3"},
	// redsync waits for 50 ms and more before it tries again.
	"three servers": {"redsync on 3", "redsync on 3", "onerun on 3", "onerun on 3"},
}

// foreign returns the kinds that are old libraries.
func foreign(kinds []string) []string {
	return slices.DeleteFunc(slices.Clone(kinds), func(kind string) bool {
		return strings.HasPrefix(strings.TrimPrefix(kind, early), "onerun")
	})
}

// startServers starts what the kinds need, and returns the addresses.
func startServers(t *testing.T, kinds []string) (addrs []string) {
	servers := 1
	if strings.HasSuffix(kinds[0], "on 3") {
		servers = 3
	}
	for _, server := range redistest.StartN(t, servers) {
		addrs = append(addrs, server.Addr())
	}
	return addrs
}

// runFleet runs a fleet for some time, kills a member now and then, and starts another one instead.
func runFleet(t *testing.T, kinds []string, span time.Duration) {
	addrs := startServers(t, kinds)
	f := fleettest.New(t, memberEnv)
	var members []*fleettest.Member
	for _, kind := range kinds {
		members = append(members, f.Start(kind, addrs...))
	}
	kills := 0
	for over := time.After(span); ; kills++ {
		select {
		case <-over:
		case <-time.After(min(span/4, 2*time.Second)):
			i := rand.N(len(members))
			f.Kill(members[i])
			members[i] = f.Start(members[i].Kind, addrs...)
			continue
		}
		break
	}
	// each kind makes progress to the end, whichever processes were killed
	for _, m := range members {
		f.AwaitRuns(m.Kind, 1)
	}
	for _, m := range members {
		f.Stop(m)
	}
	runs := f.Check(foreign(kinds)...)
	t.Logf("%v and %d kills: %v", span, kills, runs)
}

// Processes with an old library and with single.WithPlainKeys never hold a lock at the same time.
func TestMixedFleets_excludeEachOther(t *testing.T) {
	t.Parallel()
	for name, kinds := range mixedFleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runFleet(t, kinds, 2*time.Second)
		})
	}
}

func TestWeekly_mixedFleets(t *testing.T) {
	redistest.Long(t)
	span := 20 * time.Second
	if text := os.Getenv(fleetEnv); text != "" {
		var err error
		span, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	for name, kinds := range mixedFleets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runFleet(t, kinds, span)
		})
	}
}

// A fleet tells whose overrun an overlap is: a member that releases its lock before its work makes
// the test fail if it is one of ours. The locks of the other members are held then.
func TestMixedFleets_tellWhoseOverrunItIs(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]string{
		{early + "onerun", "redislock"},
		{early + "onerun of 3", "rueidislock of 3"},
		{early + "onerun on 3", "redsync on 3"},
		{early + "redislock", "onerun"},
		{early + "rueidislock of 3", "onerun of 3"},
		{early + "redsync on 3", "onerun on 3"},
	} {
		t.Run(kinds[0], func(t *testing.T) {
			t.Parallel()
			addrs := startServers(t, kinds)
			f := fleettest.New(t, memberEnv)
			members := []*fleettest.Member{f.Start(kinds[0], addrs...), f.Start(kinds[1], addrs...)}
			require.Eventually(t, func() bool {
				faults, excused := f.Overlaps(foreign(kinds)...)
				return len(faults)+len(excused) >= 3
			}, time.Minute, 20*time.Millisecond)
			for _, m := range members {
				f.Stop(m)
			}
			faults, excused := f.Overlaps(foreign(kinds)...)
			if len(foreign(kinds[:1])) == 0 {
				require.Empty(t, excused)
			} else {
				require.Empty(t, faults)
			}
		})
	}
}

// The locks of members last for the TTL, however long they waited. Those of rueidislock lasted no
// longer than the patience of the member, so that others had them while it worked.
func TestMixedFleets_locksOutlastThePatience(t *testing.T) {
	t.Parallel()
	for name, kinds := range mixedFleets {
		for _, kind := range slices.Compact(slices.Clone(kinds)) {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				addrs := startServers(t, kinds)
				acquire, err := openMember(fleettest.Role{Kind: kind, Addrs: addrs})
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), fleettest.TTL/3)
				defer cancel()
				lock, err := acquire(ctx)
				require.NoError(t, err)
				rdb := redis.NewClient(&redis.Options{Addr: addrs[0]})
				defer rdb.Close()
				require.Greater(t, rdb.PTTL(t.Context(), prefix+"report").Val(), fleettest.TTL/3)
				require.NoError(t, lock.Release())
			})
		}
	}
}
