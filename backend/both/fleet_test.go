package both_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// memberEnv makes the test binary a member of a fleet: it holds the role.
const memberEnv = "ONERUN_BOTH_MEMBER"

// A rollout is a move of a fleet.
type rollout struct {
	name     string
	from, to string // see layouts
	servers  int    // 1 if it is a move between layouts on one server
}

var rollouts = []rollout{
	{"to another server", "single", "single", 2},
	{"to another layout", "single", "reentrant", 1},
	{"from plain keys", "plain", "single", 1},
}

// stages are those of a rollout. A member's kind is one of them, and the name of the rollout.
var stages = []string{"old", "both", "next"}

func (r rollout) locker(stage string, from, to redis.UniversalClient) guard.Locker {
	switch stage {
	case "old":
		return layouts[r.from](from)
	case "next":
		return layouts[r.to](to)
	}
	return both.New(layouts[r.from](from), layouts[r.to](to))
}

func openMember(role fleettest.Role) (fleettest.Acquire, error) {
	stage, name, _ := strings.Cut(role.Kind, " ")
	r := rollouts[slices.IndexFunc(rollouts, func(r rollout) bool { return r.name == name })]
	from := redis.NewClient(&redis.Options{Addr: role.Addrs[0]})
	to := redis.NewClient(&redis.Options{Addr: role.Addrs[len(role.Addrs)-1]})
	return fleettest.By(r.locker(stage, from, to))
}

// roll moves a fleet from stage to stage.
func roll(t *testing.T, r rollout, path []string, while time.Duration) {
	var addrs, kinds []string
	for _, s := range redistest.StartN(t, r.servers) {
		addrs = append(addrs, s.Addr())
	}
	for _, stage := range path {
		kinds = append(kinds, stage+" "+r.name)
	}
	f := fleettest.New(t, memberEnv)
	kills := f.Roll(kinds, while, addrs...)
	t.Logf("%d kills: %v", kills, f.Check())
}

// Six processes move, one after the other, in all stages. No two hold the lock at the same time,
// and fences grow across the stages. TestWeekly_rollouts has the other moves.
func TestRollout_hasNoGap(t *testing.T) {
	t.Parallel()
	for _, r := range rollouts[:1] {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			roll(t, r, stages, 200*time.Millisecond)
		})
	}
}

// There and back again.
func TestWeekly_rollouts(t *testing.T) {
	redistest.Long(t)
	path := append(append([]string(nil), stages...), "both", "old")
	for _, r := range rollouts {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			roll(t, r, path, time.Second)
		})
	}
}

// The stages cannot be skipped: this is what the stage in the middle is for.
func TestRollout_needsTheStageInTheMiddle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	connect := func(stage string) *guard.Guard {
		return newGuard(t, rollouts[1].locker(stage, server.Client(t), server.Client(t)))
	}
	_, err := connect("old").Acquire(t.Context(), "k")
	require.NoError(t, err)
	_, err = connect("next").Acquire(t.Context(), "k")
	require.NoError(t, err)
	_, err = connect("both").Acquire(t.Context(), "k")
	require.ErrorIs(t, err, guard.ErrBusy)
}

func newGuard(t *testing.T, l guard.Locker, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(l, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = g.Close(ctx) // revokes what the test has left
	})
	return g
}
