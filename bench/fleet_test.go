package bench

import (
	"context"
	"math/rand/v2"
	"os"
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

// openMember returns how a member takes the lock "report": by the library of its kind, or by ours
// in the place of it.
func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	var rdb *redis.Client
	var pools []redsyncredis.Pool
	var nodes []guard.Locker
	name := func(key string) string { return prefix + key }
	for _, addr := range role.Addrs {
		rdb = redis.NewClient(&redis.Options{Addr: addr})
		pools = append(pools, goredis.NewPool(rdb))
		nodes = append(nodes, single.New(rdb, single.WithPlainKeys(name)))
	}
	switch role.Kind {
	case "redsync", "redsync on 3":
		rs := redsync.New(pools...)
		return func(ctx context.Context) (uint64, func() error, error) {
			m := rs.NewMutex(prefix+"report", redsync.WithExpiry(fleettest.TTL))
			err := m.LockContext(ctx)
			return 0, func() error { _, err := m.Unlock(); return err }, err
		}, nil
	case "redislock":
		client := redislock.New(rdb)
		often := &redislock.Options{RetryStrategy: redislock.LinearBackoff(16 * time.Millisecond), Metadata: "fleet"}
		return func(ctx context.Context) (uint64, func() error, error) {
			lock, err := client.Obtain(ctx, prefix+"report", fleettest.TTL, often)
			return 0, func() error { return lock.Release(context.Background()) }, err
		}, nil
	case "rueidislock", "rueidislock of 3":
		majority := int32(1)
		if role.Kind != "rueidislock" {
			majority = 2 // of three keys, the default
		}
		l, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: role.Addrs}, KeyValidity: fleettest.TTL, KeyMajority: majority,
		})
		return func(ctx context.Context) (uint64, func() error, error) {
			_, cancel, err := l.WithContext(ctx, "report")
			return 0, func() error { cancel(); return nil }, err
		}, err
	}
	keys, locker := []string{"report"}, nodes[0]
	switch role.Kind {
	case "onerun of 3":
		keys = []string{"0:report", "1:report", "2:report"}
		locker = single.New(rdb, single.WithPlainKeys(func(key string) string { return "rueidislock:" + key }))
	case "onerun on 3":
		locker = redlock.New(nodes)
	}
	g, err := guard.New(locker, guard.WithTTL(fleettest.TTL), guard.WithWait(guard.Forever))
	return func(ctx context.Context) (uint64, func() error, error) {
		l, err := g.AcquireAll(ctx, keys)
		if err != nil {
			return 0, nil, err
		}
		return l.Fence(), func() error { return l.Release(context.Background()) }, nil
	}, err
}

// mixedFleets are the kinds of members that share a lock: old libraries, and ours.
var mixedFleets = map[string][]string{
	"one name":    {"redsync", "redislock", "rueidislock", "onerun", "onerun"},
	"three names": {"rueidislock of 3", "rueidislock of 3", "onerun of 3", "onerun of 3"},
	// redsync waits for 50 ms and more before it tries again.
	"three servers": {"redsync on 3", "redsync on 3", "onerun on 3", "onerun on 3"},
}

// runFleet runs a fleet for some time, kills a member now and then, and starts another one instead.
func runFleet(t *testing.T, kinds []string, span time.Duration) {
	servers := 1
	if strings.HasSuffix(kinds[0], "on 3") {
		servers = 3
	}
	var addrs []string
	for _, server := range redistest.StartN(t, servers) {
		addrs = append(addrs, server.Addr())
	}
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
	runs := f.Check()
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

func TestLong_mixedFleets(t *testing.T) {
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
