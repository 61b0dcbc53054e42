package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// inNamespace returns onerun in a PID namespace of its own that has the /proc of the host. It is
// the first process there, or has a shell as its parent.
func (s *site) inNamespace(below bool, args ...string) *exec.Cmd {
	s.t.Helper()
	unshare, err := exec.LookPath("unshare")
	require.NoError(s.t, err)
	flags := []string{"unshare", "--pid", "--fork", "--kill-child"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--user", "--map-root-user")
	}
	if below {
		flags = append(flags, "sh", "-c", `"$0" "$@"; exit $?`)
	}
	cmd := s.command()
	cmd.Path, cmd.Args = unshare, append(append(flags, program), args...)
	return cmd
}

// In a PID namespace, /proc may be that of the host. Its processes have other numbers there. Onerun
// found none of its own, so a command that should have been killed ran on beside the next holder.
func TestRun_inAPIDNamespaceWithTheProcOfTheHost(t *testing.T) {
	breaks := func(s *site, _ *execution) { s.breaks("break", "--now", "k") }
	for name, c := range map[string]struct {
		script string
		ends   func(*site, *execution) // ends the run, or nil
		code   int
	}{
		"it is killed":       {`trap "" TERM; ` + stubborn + ticking, breaks, 124},
		"in a namespace too": {`exec unshare --pid --fork sh -c 'trap "" TERM; ` + ticking + `'`, breaks, 124},
		"what is left": {
			`setsid sh -c 'trap "" TERM; ` + ticking + `' & while ! [ -s ticks ]; do sleep 0.05; done; exit 3`, nil, 3,
		},
		"its keeper has died": {stubborn + ticking, func(s *site, e *execution) { killKeeper(s.t, e) }, 125},
	} {
		for _, below := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, below a shell: %v", name, below), func(t *testing.T) {
				s := newSite(t)
				e := execute(t, s.inNamespace(below, "run", "--ttl=3s", "--grace=500ms", "k", "--", "sh", "-c", c.script))
				s.written("ticks")
				if c.ends != nil {
					c.ends(s, e)
				}
				s.eventually(func() bool { return !alive(e.cmd.Process.Pid) }, "the run does not end")
				require.Equal(t, c.code, e.wait())
				require.Zero(t, first(s.run("run", "--wait=10s", "k", "--", "sh", "-c", "date +%s%N >second")))
				require.True(t, s.lastTick().Before(s.instant("second")), "the two never ran at the same time")
			})
		}
	}
}

// killKeeper kills the keeper among the descendants of a process.
func killKeeper(t *testing.T, e *execution) {
	t.Helper()
	killed := 0
	for _, pid := range tree(t, e.cmd.Process.Pid) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // some end meanwhile
		if bytes.HasSuffix(args, []byte("\x00_keeper\x00")) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed++
		}
	}
	require.Equal(t, 1, killed)
}
