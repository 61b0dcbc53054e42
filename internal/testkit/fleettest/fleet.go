package fleettest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A Fleet is the processes of a test that want one lock. One goroutine at a time may use it.
type Fleet struct {
	t       *testing.T
	env     string
	witness *redis.Client
	addr    string
	started int
}

// A Member is a process of a Fleet.
type Member struct {
	Role
	child *processtest.Child
}

// New returns a Fleet without members. env is the variable that makes the test binary a member.
func New(t *testing.T, env string) *Fleet {
	t.Helper()
	server := redistest.Start(t)
	return &Fleet{t: t, env: env, witness: server.Client(t), addr: server.Addr()}
}

// Start starts a member, and returns when it is about to ask for the lock.
func (f *Fleet) Start(kind string, addrs ...string) *Member {
	f.t.Helper()
	return f.start(exec.Command(os.Args[0]), f.env, kind, addrs)
}

// StartCommand starts a member that is another program, in any language. The variable
// ONERUN_FLEET_MEMBER has a Script, as JSON. The program does what Serve does.
func (f *Fleet) StartCommand(cmd *exec.Cmd, kind string, addrs ...string) *Member {
	f.t.Helper()
	return f.start(cmd, scriptEnv, kind, addrs)
}

func (f *Fleet) start(cmd *exec.Cmd, env, kind string, addrs []string) *Member {
	f.t.Helper()
	f.started++
	role := Role{ID: fmt.Sprintf("%s-%d", kind, f.started), Kind: kind, Addrs: addrs, Witness: f.addr}
	var what any = role
	if env == scriptEnv {
		what = newScript(role)
	}
	text, err := json.Marshal(what)
	require.NoError(f.t, err)
	cmd.Env = append(cmd.Environ(), env+"="+string(text))
	child := processtest.StartChild(f.t, cmd)
	require.Equal(f.t, "ready", child.Next())
	return &Member{role, child}
}

// Kill kills a member. The lock may remain until its TTL has passed.
func (f *Fleet) Kill(m *Member) {
	f.t.Helper()
	m.child.Kill()
	_, err := f.witness.TxPipelined(f.t.Context(), func(p redis.Pipeliner) error {
		p.SAdd(f.t.Context(), killed, m.ID) // what it has sent may yet arrive
		p.HDel(f.t.Context(), inside, m.ID)
		return nil
	})
	require.NoError(f.t, err)
}

// Stop lets a member end by itself.
func (f *Fleet) Stop(m *Member) {
	f.t.Helper()
	m.child.Tell("stop")
	m.child.Ends()
}

// Roll starts six members of the first kind, and moves them from kind to kind: one member at a
// time, a third of which it kills. Each mixture runs for up to a while. It returns how many it has
// killed.
func (f *Fleet) Roll(kinds []string, while time.Duration, addrs ...string) (kills int) {
	f.t.Helper()
	var members []*Member
	for range 6 {
		members = append(members, f.Start(kinds[0], addrs...))
	}
	f.AwaitRuns(kinds[0], 10)
	for _, kind := range kinds[1:] {
		for i, m := range members {
			time.Sleep(rand.N(while)) // the load of the mixture
			if rand.N(3) == 0 {
				f.Kill(m)
				kills++
			} else {
				f.Stop(m)
			}
			members[i] = f.Start(kind, addrs...)
		}
		f.AwaitRuns(kind, 10)
	}
	return kills
}

// Runs returns how often the members of each kind have had the lock.
func (f *Fleet) Runs() map[string]int {
	f.t.Helper()
	counted := map[string]int{}
	for kind, text := range f.witness.HGetAll(f.t.Context(), runs).Val() {
		n, err := strconv.Atoi(text)
		require.NoError(f.t, err)
		counted[kind] = n
	}
	return counted
}

// AwaitRuns waits until members of that kind have had the lock n more times.
func (f *Fleet) AwaitRuns(kind string, n int) {
	f.t.Helper()
	before := f.Runs()[kind]
	require.Eventually(f.t, func() bool { return f.Runs()[kind] >= before+n }, time.Minute, 10*time.Millisecond, kind)
}

// Check fails the test if two members had the lock at the same time, or if a fence was not larger
// than all before it. Overruns of foreign kinds are logged: see Overlaps. It returns what Runs
// does.
func (f *Fleet) Check(foreign ...string) map[string]int {
	f.t.Helper()
	faults, excused := f.Overlaps(foreign...)
	for _, overlap := range excused {
		f.t.Log("another library has overrun its lock:", overlap)
	}
	require.Empty(f.t, faults, "members that had the lock at the same time")
	require.Empty(f.t, f.witness.LRange(f.t.Context(), stale, 0, 9).Val(), "fences that were not larger than all before them")
	return f.Runs()
}

// Overlaps returns the times at which two members had the lock. An overlap is excused if a member
// of a foreign kind has overrun its lock: there is one in it, and each other member held the lock
// until its stay ended. The members must have stopped, because they say so when a stay ends. If a
// member was killed before that, the overlap is a fault.
func (f *Fleet) Overlaps(foreign ...string) (faults, excused []string) {
	f.t.Helper()
	ctx := f.t.Context()
	said := f.witness.HGetAll(ctx, seen).Val()
	for pair := range slices.Chunk(f.witness.LRange(ctx, overlaps, 0, -1).Val(), 2) {
		overrun := func(stay string) bool { return !f.witness.SIsMember(ctx, holders, stay).Val() }
		ours := slices.DeleteFunc(slices.Clone(pair), func(stay string) bool { return slices.Contains(foreign, kindOf(stay)) })
		text := fmt.Sprintf("%s (%s) beside %s (%s)", pair[0], said[pair[0]], pair[1], said[pair[1]])
		if len(ours) == len(pair) || slices.ContainsFunc(ours, overrun) {
			faults = append(faults, text)
		} else {
			excused = append(excused, text)
		}
	}
	return faults, excused
}

// kindOf returns the kind of the member of a stay.
func kindOf(stay string) string { return stay[:strings.LastIndex(stay, "-")] }
