package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	redislocker "github.com/go-co-op/gocron-redis-lock/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/fleettest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

// A mixedPair is another library and ours in its place, in one layout that a page claims to share.
type mixedPair struct {
	theirs, ours string
	lock         string   // the name of the lock, as theirs is given it
	command      []string // of theirs; none if the test binary is it
}

// languagePairs are the mixed fleets of proof fleets.
var languagePairs = []mixedPair{
	{"gocron-redis-lock", "onerun as gocron", "report", nil},
	{"redis-py", "onerun", prefix + "report", []string{"python3", "fleet/member.py"}},
	{"node-redlock", "onerun", prefix + "report", []string{"node", "fleet/member.js", "redlock"}},
	{"redis-semaphore", "onerun as mutex", "report", []string{"node", "fleet/member.js", "redis-semaphore"}},
	{"node-redisson", "onerun as RLock", "report", []string{"node", "fleet/member.js", "node-redisson"}},
}

// gocronRedisLock is the locker that a scheduler of gocron has without Onerun.
func gocronRedisLock(rdb *redis.Client) (fleettest.Acquire, error) {
	locker, err := redislocker.NewRedisLocker(rdb, redsync.WithExpiry(fleettest.TTL))
	return gocronMember(locker, nil), err
}

// gocronLocker is ours in its place, as the page on redsync says.
func gocronLocker(rdb *redis.Client) (fleettest.Acquire, error) {
	plain := single.WithPlainKeys(guardgocron.PlainKeys("billing"))
	g, err := guard.New(single.New(rdb, plain), guard.WithNamespace("billing"), guard.WithTTL(fleettest.TTL))
	if err != nil {
		return nil, err
	}
	held := func() (bool, string) {
		value := valueAt(rdb, "report")
		return strings.HasPrefix(value, "onerun:H"), value
	}
	locker, err := guardgocron.NewLocker[gocron.Lock](g, guard.WithWait(time.Second))
	return gocronMember(locker, held), err
}

func gocronMember(locker gocron.Locker, held func() (bool, string)) fleettest.Acquire {
	return func(ctx context.Context) (fleettest.Lock, error) {
		lock, err := locker.Lock(ctx, "report")
		if err != nil {
			return fleettest.Lock{}, err
		}
		return fleettest.Lock{Held: held, Release: func() error {
			err := lock.Unlock(context.Background())
			if held == nil && errors.Is(err, redislocker.ErrFailedToReleaseLock) {
				return nil // it has overrun its lock
			}
			return err
		}}, nil
	}
}

// onerunAt is ours over a layout, in which the key "report" is at that name.
func onerunAt(locker guard.Locker, held func(l *guard.Lease) (bool, string)) (fleettest.Acquire, error) {
	g, err := guard.New(locker, guard.WithTTL(fleettest.TTL), guard.WithWait(guard.Forever))
	return func(ctx context.Context) (fleettest.Lock, error) {
		l, err := g.Acquire(ctx, "report")
		if err != nil {
			return fleettest.Lock{}, err
		}
		return fleettest.Lock{
			Fence:   l.Fence(),
			Release: func() error { return l.Release(context.Background()) },
			Held:    func() (bool, string) { return held(l) },
		}, nil
	}, err
}

// openLanguageMember returns how a member of a pair takes the lock, or nil if the kind is of no
// pair.
func openLanguageMember(kind string, rdb *redis.Client) (fleettest.Acquire, error) {
	switch kind {
	case "gocron-redis-lock":
		return gocronRedisLock(rdb)
	case "onerun as gocron":
		return gocronLocker(rdb)
	case "onerun as mutex":
		plain := single.WithPlainKeys(func(key string) string { return "mutex:" + key })
		return onerunAt(single.New(rdb, plain), func(l *guard.Lease) (bool, string) {
			value := valueAt(rdb, "mutex:report")
			return leased([]string{value}, l.Fence()), value
		})
	case "onerun as RLock":
		return onerunAt(reentrant.New(rdb), func(*guard.Lease) (bool, string) {
			fields, err := rdb.HGetAll(context.Background(), "report").Result()
			for field := range fields {
				if strings.HasPrefix(field, "onerun:") {
					return true, field
				}
			}
			return false, fmt.Sprint(fields, err)
		})
	}
	return nil, nil
}

// start starts a member of the other library.
func (p mixedPair) start(t *testing.T, f *fleettest.Fleet, addr string) *fleettest.Member {
	t.Helper()
	if p.command == nil {
		return f.Start(p.theirs, addr)
	}
	program := p.command[0]
	if program == "python3" {
		program = python()
	}
	cmd := exec.Command(program, p.command[1:]...)
	cmd.Env = append(cmd.Environ(), "FLEET_LOCK="+p.lock, "NODE_PATH="+nodeModules(t))
	return f.StartCommand(cmd, p.theirs, addr)
}

// python returns the Python that has redis-py: the first on the PATH, or else Debian's.
func python() string {
	if exec.Command("python3", "-c", "import redis").Run() != nil {
		return "/usr/bin/python3"
	}
	return "python3"
}

// nodeModules returns the folder into which make tools installs the libraries of Node.js.
func nodeModules(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../bin/fleets/node_modules")
	require.NoError(t, err)
	return path
}

// requireTools ends the test if the other library of the pair is missing: see leftout.
func (p mixedPair) requireTools(t *testing.T) {
	t.Helper()
	var check *exec.Cmd
	switch {
	case p.command == nil:
		return
	case p.command[0] == "python3":
		check = exec.Command(python(), "-c", "import redis")
	default:
		check = exec.Command("node", "-e", "for (const m of ['ioredis', '"+p.command[2]+"']) require(m)")
		check.Env = append(check.Environ(), "NODE_PATH="+nodeModules(t))
	}
	if out, err := check.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		err = fmt.Errorf("%s does not load: %w: %s", p.theirs, err, lines[len(lines)-1])
		leftout.Unless(t, "ONERUN_REQUIRE_FLEETS", err, p.theirs, "run make tools")
	}
}

// Processes with the real other library and with ours never hold a lock at the same time, in each
// layout that the pages claim to share, while members of both are killed.
func TestFleets_ofOtherLibraries(t *testing.T) {
	span := 3 * time.Second
	if text := os.Getenv(fleetEnv); text != "" {
		var err error
		span, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	for _, p := range languagePairs {
		t.Run(p.theirs, func(t *testing.T) {
			t.Parallel()
			p.requireTools(t)
			p.run(t, span)
		})
	}
}

// run runs two members of each for some time, and kills one of each in turn.
func (p mixedPair) run(t *testing.T, span time.Duration) {
	addr := redistest.Start(t).Addr()
	f := fleettest.New(t, memberEnv)
	start := []func() *fleettest.Member{
		func() *fleettest.Member { return p.start(t, f, addr) },
		func() *fleettest.Member { return f.Start(p.ours, addr) },
	}
	members := []*fleettest.Member{start[0](), start[1](), start[0](), start[1]()}
	begun, kills := time.Now(), 0
	for pause := min(span/3, 5*time.Second); time.Since(begun)+pause < span; kills++ {
		time.Sleep(pause) // the load of the fleet
		i := kills % len(members)
		f.Kill(members[i])
		members[i] = start[i%2]()
	}
	time.Sleep(span - time.Since(begun))
	f.AwaitRuns(p.theirs, 2)
	f.AwaitRuns(p.ours, 2)
	for _, m := range members {
		f.Stop(m)
	}
	runs := f.Check(p.theirs)
	t.Log(strconv.Itoa(kills), "kills in", span, runs)
}
