package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// What follows is not UTF-8: it is Latin-1.
const (
	cafe  = "caf\xe9"
	latin = "k\xe9x"
)

// manyArguments are a megabyte: more than a pipe has room for.
func manyArguments() []string {
	return slices.Repeat([]string{strings.Repeat("x", 100_000)}, 10)
}

// The order to the keeper was cut, and both waited for good. The lease was renewed meanwhile.
func TestRun_passesAMegabyteOfArguments(t *testing.T) {
	s := newSite(t)
	args := append([]string{"run", "k", "--", "sh", "-c", `for arg; do echo ${#arg}; done`, "sh"}, manyArguments()...)
	e := s.start(args...)
	s.eventually(func() bool { return !alive(e.cmd.Process.Pid) }, "it hangs")
	require.Zero(t, e.wait(), e.errs.String())
	require.Equal(t, strings.Repeat("100000\n", 10), e.out.String())
}

// A signal that comes before the command has started ends the run, also if the keeper is stuck.
func TestRun_aSignalEndsARunWhoseKeeperIsStuck(t *testing.T) {
	s := newSite(t)
	// until a keeper is suspended in time
	for n, start := 0, time.Now(); time.Since(start) < time.Minute; n++ {
		key, began := fmt.Sprint("k", n), fmt.Sprint("began", n)
		args := append([]string{"run", key, "--", "sh", "-c", "echo >" + began + "; exec sleep 100"}, manyArguments()...)
		e := s.start(args...)
		var keepers []int
		s.eventually(func() bool {
			keepers = e.children()
			return len(keepers) == 1 && isKeeper(keepers[0])
		}, "there is no keeper")
		require.NoError(t, syscall.Kill(keepers[0], syscall.SIGSTOP))
		e.signal(syscall.SIGTERM)
		s.eventually(func() bool { return !alive(e.cmd.Process.Pid) }, "it goes on")
		require.Equal(t, 128+15, e.wait(), e.errs.String())
		require.False(t, alive(keepers[0]))
		if s.read(began) == "" {
			require.Zero(t, first(s.run("run", key, "--", "true")), "the key is free")
			return
		}
	}
	t.Fatal("no keeper was suspended before it had started the command")
}

// isKeeper reports whether a process is a keeper by now. Between fork and exec, it still has the
// arguments of onerun, which waits for it then.
func isKeeper(pid int) bool {
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.HasSuffix(string(args), "\x00"+"_keeper\x00")
}

func TestRun_changesNoBytesOfArguments(t *testing.T) {
	s := newSite(t)
	code, out, _ := s.run("run", "k", "--", "printf", "%s", cafe)
	require.Zero(t, code)
	require.Equal(t, cafe, out)

	program := s.path(cafe)
	require.NoError(t, os.WriteFile(program, []byte("#!/bin/sh\nprintf %s \"$VALUE\"\n"), 0o700))
	cmd := s.command("run", "k", "--", program)
	cmd.Env = append(cmd.Env, "VALUE="+cafe)
	e := execute(t, cmd)
	require.Zero(t, e.wait(), e.errs.String())
	require.Equal(t, cafe, e.out.String())
	_, _, errs := s.run("run", "k", "--", filepath.Join(s.dir, "no", cafe))
	require.Contains(t, errs, `caf\xe9`, "a terminal gets valid UTF-8")
}

func TestRun_changesNoBytesOfKeys(t *testing.T) {
	s := newSite(t)
	code, out, _ := s.run("run", latin, "--", "sh", "-c", `printf %s "$ONERUN_KEY"`)
	require.Zero(t, code)
	require.Equal(t, latin, out)

	g, err := guard.New(single.New(s.client), guard.WithLabel("web-1"))
	require.NoError(t, err)
	l, err := g.Acquire(t.Context(), latin)
	require.NoError(t, err)
	require.Equal(t, 75, first(s.run("run", latin, "--", "true")))
	_, out, _ = s.run("show", latin)
	require.Contains(t, out, `k\xe9x is held`)
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, g.Close(t.Context()))
}

// Only run has a command after "--". For the others, it ends the flags.
func TestArguments_aKeyMayBeginWithADash(t *testing.T) {
	s := newSite(t)
	code, out, errs := s.run("show", "--", "-k")
	require.Zero(t, code, errs)
	require.Equal(t, "-k is free\n", out)
	code, _, errs = s.run("show", "k", "--", "extra")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "extra")
	code, out, _ = s.run("--backend", "single", "run", "--label", "me", "k", "--", "echo", "--", "--json")
	require.Zero(t, code)
	require.Equal(t, "-- --json\n", out)
}

// A secret from a file ends with a newline, and people put a space after a comma.
func TestArguments_spaceAroundURLsIsDropped(t *testing.T) {
	s := newSite(t)
	url := "redis://" + s.server.Addr()
	for _, urls := range []string{url + " ", url + "\n", " " + url} {
		cmd := s.command("show", "k")
		cmd.Env = append(cmd.Env, "ONERUN_REDIS="+urls)
		e := execute(t, cmd)
		require.Zero(t, e.wait(), "%q: %s", urls, e.errs.String())
	}
}
