package main_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// Each test of this file is of a complaint about a tool of the same kind.

// stubborn is a shell command that starts a process which ignores SIGTERM, and writes its ID to the
// file "grandchild".
const stubborn = `sh -c 'trap "" TERM; echo $$ >grandchild; while :; do sleep 0.05; done' & `

// consul lock, #2022: the command runs in a shell, and what that has started survives it.
func TestRun_leavesNoGrandchildren(t *testing.T) {
	for name, script := range map[string]string{
		"in the process group": stubborn,
		"in a session":         "setsid " + stubborn,
		"of a dead parent":     `sh -c '` + strings.ReplaceAll(stubborn, "'", `'\''`) + `' ; `,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			e := s.start("run", "--ttl=3s", "--grace=100ms", "k", "--", "sh", "-c", script+"while ! [ -s grandchild ]; do sleep 0.05; done; exit 3")
			pid := s.pid("grandchild")
			require.Equal(t, 3, e.wait())
			require.False(t, alive(pid))
			require.Equal(t, 0, first(s.run("run", "k", "--", "true")), "the key is free")
		})
	}
}

func first(code int, _, _ string) int { return code }

// consul lock, #797, #2489 and #1210: the command does not get the signals.
func TestRun_forwardsSignals(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM,
		"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "ALRM": syscall.SIGALRM, "ABRT": syscall.SIGABRT, "WINCH": syscall.SIGWINCH,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			e := s.start("run", "k", "--", "sh", "-c", `trap 'echo got >got; exit 5' `+name+`; echo >ready; `+forever)
			s.written("ready")
			e.signal(sig)
			require.Equal(t, 5, e.wait())
			require.Equal(t, "got\n", s.read("got"))
		})
	}
}

// consul lock, #4439: a signal does not end the wait for the lock.
func TestRun_endsTheWaitOnASignal(t *testing.T) {
	s := newSite(t)
	holder := s.start("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
		waiter := s.start("run", "--wait=forever", "k", "--", "sh", "-c", "echo >ran")
		s.eventually(func() bool {
			n, err := s.client.PubSubChannels(t.Context(), "*").Result()
			return err == nil && len(n) > 0
		}, "it does not wait")
		waiter.signal(sig)
		require.Equal(t, 128+int(sig), waiter.wait())
		require.Contains(t, waiter.errs.String(), "while waiting")
		s.eventually(func() bool {
			n, err := s.client.PubSubChannels(t.Context(), "*").Result()
			return err == nil && len(n) == 0
		}, "it still waits")
	}
	require.Empty(t, s.read("ran"))
	holder.signal(syscall.SIGTERM)
	require.Equal(t, 128+int(syscall.SIGTERM), holder.wait())
}

// consul lock, #9788: the command learns 90 s late that the lock was lost.
func TestRun_endsTheCommandBeforeTheLeaseWhenTheStoreIsAway(t *testing.T) {
	for name, script := range map[string]string{
		"it stops at SIGTERM": `trap 'date +%s%N >stopped; exit 0' TERM; echo $$ >pid; ` + forever,
		"it ignores SIGTERM":  `trap 'date +%s%N >stopped' TERM; echo $$ >pid; ` + ticking,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			const ttl, grace = 6 * time.Second, 2 * time.Second
			e := s.start("run", "--once=1h", "--ttl="+ttl.String(), "--grace="+grace.String(), "k", "--", "sh", "-c", script)
			pid := s.pid("pid")
			stalls, frozen := redistest.WatchStalls(), time.Now()
			defer stalls.Stop()
			s.server.Freeze()
			s.eventually(func() bool { return !alive(pid) }, "it lives on")
			took, held := time.Since(frozen), stalls.Since(frozen)
			require.Less(t, took, ttl+held, "the lease began before the server froze")
			s.server.Thaw()
			require.Equal(t, 124, e.wait())
			require.Contains(t, e.errs.String(), `onerun: lease on "k" was lost (expired)`)
			told := s.instant("stopped").Sub(frozen)
			require.Less(t, told, ttl-grace/2+held, "the shell takes a moment to say so")
			if s.read("ticks") != "" && held < grace/4 {
				require.Greater(t, s.lastTick().Sub(frozen), told+grace/8, "it had its grace period")
			}
			require.Equal(t, 0, first(s.run("run", "--wait=30s", "k", "--", "true")), "a lost run leaves no marker")
		})
	}
}

// instant reads an instant that "date +%s%N" has written.
func (s *site) instant(name string) time.Time {
	s.t.Helper()
	return s.parse(s.written(name))
}

// lastTick reads the last of the instants of ticking.
func (s *site) lastTick() time.Time {
	s.t.Helper()
	all := strings.Split(s.read("ticks"), "\n")
	require.Greater(s.t, len(all), 1, "there is a whole line")
	return s.parse(all[len(all)-2])
}

func (s *site) parse(text string) time.Time {
	s.t.Helper()
	ns, err := strconv.ParseInt(text, 10, 64)
	require.NoError(s.t, err)
	return time.Unix(0, ns)
}

// etcdctl lock, #7983: the command goes on although the lock was lost.
func TestRun_endsTheCommandWhenTheLeaseIsGone(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "--ttl=6s", "k", "--", "sh", "-c", "trap 'echo >told' TERM; echo $$ >pid; "+forever)
	pid := s.pid("pid")
	require.NoError(t, s.client.FlushAll(t.Context()).Err())
	require.Equal(t, 124, e.wait())
	require.Empty(t, s.read("told"), "without a grace period: another may run by now")
	require.False(t, alive(pid))
	require.Contains(t, e.errs.String(), "not_held", "at the next renewal, before the lease would have ended")
}

// consul lock, #947: the exit code of the command is lost.
func TestRun_returnsTheExitCode(t *testing.T) {
	s := newSite(t)
	for _, code := range []int{0, 1, 2, 75, 124, 255} {
		require.Equal(t, code, first(s.run("run", "k", "--", "sh", "-c", fmt.Sprintf("exit %d", code))))
	}
	require.Equal(t, 128+9, first(s.run("run", "k", "--", "sh", "-c", "kill -9 $$")))
	require.Equal(t, 128+15, first(s.run("run", "k", "--", "sh", "-c", "kill -TERM $$")))
}

// consul lock, #1063: arguments need to be quoted once more.
func TestRun_needsNoQuoting(t *testing.T) {
	s := newSite(t)
	args := []string{"a b", "$HOME", `"quoted"`, "it's", "*", "", "line\nline", "--ttl=1s", "--", "-E", "5"}
	code, out, _ := s.run(append([]string{"run", "k", "--", "printf", `<%s>\n`}, args...)...)
	require.Equal(t, 0, code)
	var want strings.Builder
	for _, arg := range args {
		fmt.Fprintf(&want, "<%s>\n", arg)
	}
	require.Equal(t, want.String(), out)
}

// cronlocker, PR 10, and cronlock (200 and 201): busy looks like an error of the tool. flock: -E.
func TestRun_tellsBusyFromAnError(t *testing.T) {
	s := newSite(t)
	s.start("run", "--label=web-7", "k", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	code, _, errs := s.run("run", "k", "--", "true")
	require.Equal(t, 75, code)
	require.Equal(t, "onerun: \"k\" is busy: web-7 holds it\n", errs)
	require.Equal(t, 9, first(s.run("run", "-E", "9", "k", "--", "true")))
	require.Equal(t, 0, first(s.run("run", "--conflict-exit-code=0", "k", "--", "true")))
	s.server.Kill()
	code, _, errs = s.run("run", "k2", "--", "true")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "onerun: ")
}

// consul lock kills by the session's TTL at best: a suspended onerun must not keep its command
// running while another one has the key.
func TestRun_endsTheCommandOfASuspendedOnerun(t *testing.T) {
	s := newSite(t)
	suspended := s.start("run", "--ttl=3s", "k", "--", "sh", "-c", `echo $$ >pid; `+stubborn+` trap "" TERM; `+ticking)
	pid, grandchild := s.pid("pid"), s.pid("grandchild")
	s.written("ticks")
	suspended.signal(syscall.SIGSTOP)
	require.Equal(t, 0, first(s.run("run", "--wait=30s", "k", "--", "sh", "-c", "date +%s%N >second")))
	// a process that is killed has ended before the machine says so
	s.eventually(func() bool { return !alive(pid) && !alive(grandchild) }, "it lives on")
	require.True(t, s.lastTick().Before(s.instant("second")), "the two never ran at the same time")
	suspended.signal(syscall.SIGCONT)
	require.Equal(t, 124, suspended.wait())
}

// Nothing that onerun has started survives it: kill -9, or the kernel, out of memory.
func TestRun_endsTheCommandOfAKilledOnerun(t *testing.T) {
	for name, setsid := range map[string]string{"in the process group": "", "in a session": "setsid "} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			killed := s.start("run", "k", "--", "sh", "-c", "echo $$ >pid; "+setsid+stubborn+"trap '' TERM; "+forever)
			pid, grandchild := s.pid("pid"), s.pid("grandchild")
			keeper := killed.keeper()
			killed.signal(syscall.SIGKILL)
			s.eventually(func() bool { return !alive(pid) && !alive(grandchild) && !alive(keeper) }, "it lives on")
		})
	}
}

func TestRun_endsTheCommandOfAKeeperThatIsKilledOrSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		signal syscall.Signal
		freeze bool
		code   int
	}{
		"killed":                           {syscall.SIGKILL, false, 125},
		"suspended, and the store is away": {syscall.SIGSTOP, true, 124},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			const ttl = 4 * time.Second
			e := s.start("run", "--ttl="+ttl.String(), "k", "--", "sh", "-c", "echo $$ >pid; setsid "+stubborn+"trap '' TERM; "+forever)
			pid, grandchild := s.pid("pid"), s.pid("grandchild")
			keeper := e.keeper()
			stalls, start := redistest.WatchStalls(), time.Now()
			defer stalls.Stop()
			require.NoError(t, syscall.Kill(keeper, c.signal))
			if c.freeze {
				s.server.Freeze()
				defer s.server.Thaw()
			}
			s.eventually(func() bool { return !alive(pid) && !alive(grandchild) }, "it lives on")
			took := time.Since(start)
			require.Less(t, took, ttl+stalls.Since(start))
			require.Equal(t, c.code, e.wait())
			require.False(t, alive(keeper))
		})
	}
}
