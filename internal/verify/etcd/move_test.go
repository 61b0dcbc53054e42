// Package etcd_test moves a fleet between Redis and etcd. It is in this module because users of
// backend/etcd do not need go-redis.
package etcd_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// memberEnv makes the test binary a member of a fleet: it holds the role.
const memberEnv = "ONERUN_ETCD_MEMBER"

func TestMain(m *testing.M) {
	if text := os.Getenv(memberEnv); text != "" {
		fleettest.Serve(text, openMember)
		return
	}
	os.Exit(m.Run())
}

// openMember opens a member, whose kind is the stage of the move.
func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: role.Addrs[1:], Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	from := single.New(redis.NewClient(&redis.Options{Addr: role.Addrs[0]}))
	to := etcd.New(client)
	lockers := map[string]guard.Locker{"old": from, "both": both.New(from, to), "next": to}
	return fleettest.By(lockers[role.Kind])
}

// Six processes move from Redis to etcd and back, under load, and some are killed. No two hold the
// lock at the same time, and fences grow across the stages.
func TestLong_aFleetMovesFromRedisAndBackWithoutAGap(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	f := fleettest.New(t, memberEnv)
	kills := f.Roll([]string{"old", "both", "next", "both", "old"}, time.Second, redistest.Start(t).Addr(), etcdtest.Start(t).Endpoints()[0])
	t.Logf("%d kills: %v", kills, f.Check())
}
