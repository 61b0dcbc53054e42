package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// counterEnv makes the test binary a command that counts signals: it is the name of its file.
const counterEnv = "ONERUN_TEST_COUNTER"

// countSignals writes each signal to a file, and ends at SIGUSR2. For terraform, as an example, a
// second SIGTERM means that it must not clean up.
func countSignals(name string) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2)
	file, err := os.Create(name)
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(file, "ready")
	for s := range signals {
		fmt.Fprintln(file, unix.SignalName(s.(syscall.Signal)))
		if s == syscall.SIGUSR2 {
			return
		}
	}
}

// counted returns the signals that a counter has written.
func (s *site) counted(name string) []string {
	lines := strings.Fields(s.read(name))
	return lines[min(1, len(lines)):] // without "ready"
}

func killAll(t *testing.T, pids []int, sig syscall.Signal) {
	t.Helper()
	for _, pid := range pids {
		err := syscall.Kill(pid, sig)
		if !errors.Is(err, syscall.ESRCH) { // others of them have ended this one
			require.NoError(t, err)
		}
	}
}

// stopRequests are ways to ask a run to stop. pid is onerun, which leads a process group.
var stopRequests = map[string]func(t *testing.T, pid int, sig syscall.Signal){
	"onerun": func(t *testing.T, pid int, sig syscall.Signal) { killAll(t, []int{pid}, sig) },
	// systemd does this, unless KillMode is mixed or process
	"each process": func(t *testing.T, pid int, sig syscall.Signal) { killAll(t, tree(t, pid), sig) },
	"each process, in the other order": func(t *testing.T, pid int, sig syscall.Signal) {
		all := tree(t, pid)
		slices.Reverse(all)
		killAll(t, all, sig)
	},
	// timeout(1) signals its child, and then its process group
	"onerun and its group": func(t *testing.T, pid int, sig syscall.Signal) { killAll(t, []int{pid, -pid}, sig) },
}

// counter returns onerun with a counter as its command.
func (s *site) counter(args ...string) *exec.Cmd {
	cmd := s.command(append(append([]string{"run"}, args...), "k", "--", os.Args[0])...)
	cmd.Env = append(cmd.Env, counterEnv+"=counter")
	return cmd
}

// endsAfterOne waits until the counter has got a signal, and has it end. What was sent to it before
// has then reached it, too.
func (s *site) endsAfterOne(sig syscall.Signal, onerun int) {
	s.t.Helper()
	s.eventually(func() bool { return len(s.counted("counter")) > 0 }, "the command gets no signal")
	require.NoError(s.t, syscall.Kill(onerun, syscall.SIGUSR2))
	want := []string{unix.SignalName(sig), "SIGUSR2"}
	s.eventually(func() bool { return slices.Contains(s.counted("counter"), "SIGUSR2") }, "it does not end")
	require.Equal(s.t, want, s.counted("counter"))
}

// Whoever stops a run, and however, the command gets one signal.
func TestRun_oneStopRequestIsOneSignal(t *testing.T) {
	for name, request := range stopRequests {
		for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1} {
			if sig != syscall.SIGTERM && name != "each process" {
				continue // a signal is sent in each way, and each signal in the way that sends most
			}
			t.Run(unix.SignalName(sig)+" to "+name, func(t *testing.T) {
				s := newSite(t)
				e := execute(t, s.counter())
				s.written("counter")
				request(t, e.cmd.Process.Pid, sig)
				s.endsAfterOne(sig, e.cmd.Process.Pid)
				require.Zero(t, e.wait())
			})
		}
	}
}

// Two requests are two signals.
func TestRun_aSecondStopRequestIsASecondSignal(t *testing.T) {
	for name, request := range stopRequests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			e := execute(t, s.counter())
			s.written("counter")
			for n := 1; n <= 3; n++ {
				request(t, e.cmd.Process.Pid, syscall.SIGTERM)
				s.eventually(func() bool { return len(s.counted("counter")) >= 2*n-1 }, "the command gets no signal")
				e.signal(syscall.SIGUSR1)
				s.eventually(func() bool { return len(s.counted("counter")) >= 2*n }, "the command gets no signal")
			}
			e.signal(syscall.SIGUSR2)
			require.Zero(t, e.wait())
			one := []string{"SIGTERM", "SIGUSR1"}
			require.Equal(t, append(slices.Repeat(one, 3), "SIGUSR2"), s.counted("counter"))
		})
	}
}

// timeout(1) signals its child, and then its process group.
func TestRun_isOneSignalUnderTimeout(t *testing.T) {
	timeout, err := exec.LookPath("timeout")
	require.NoError(t, err)
	s := newSite(t)
	cmd := s.counter()
	cmd.Args = append([]string{"timeout", "1h", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = timeout
	e := execute(t, cmd)
	s.written("counter")
	onerun := e.children()
	require.Len(t, onerun, 1)
	e.signal(syscall.SIGTERM) // as when the time is up
	s.endsAfterOne(syscall.SIGTERM, onerun[0])
	e.wait()
}

// A program whose parent ends at once at SIGTERM, as a shell does, got another SIGTERM as one of
// the processes that are left. A process that the request has not reached still gets one.
func TestRun_whatIsLeftGetsOneSignal(t *testing.T) {
	requests := map[string]func(t *testing.T, s *site, pid int){
		"break": func(_ *testing.T, s *site, _ int) { s.breaks("break", "k") },
	}
	for name, request := range stopRequests {
		requests[name] = func(t *testing.T, _ *site, pid int) { request(t, pid, syscall.SIGTERM) }
	}
	for name, request := range requests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			const grace = "--grace=2s" // then all are killed
			e := s.start("run", "--ttl=9s", grace, "k", "--", "sh", "-c", fmt.Sprintf(
				`%[1]s=group %[2]s & %[1]s=session setsid %[2]s & wait`, counterEnv, os.Args[0]))
			s.written("group")
			s.written("session")
			request(t, s, e.cmd.Process.Pid)
			s.eventually(func() bool { return !alive(e.cmd.Process.Pid) }, "the run does not end")
			require.Equal(t, []string{"SIGTERM"}, s.counted("group"))
			require.Equal(t, []string{"SIGTERM"}, s.counted("session"))
		})
	}
}
