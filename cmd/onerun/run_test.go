package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestRun_once(t *testing.T) {
	s := newSite(t)
	require.Equal(t, 4, first(s.run("run", "--once=1h", "k", "--", "sh", "-c", "exit 4")))
	code, out, _ := s.run("run", "--once=1h", "--label=web-3", "k", "--", "echo", "ran")
	require.Equal(t, 0, code, "a failure leaves no marker")
	require.Equal(t, "ran\n", out)
	code, out, errs := s.run("run", "--once=1h", "k", "--", "echo", "ran")
	require.Equal(t, 0, code)
	require.Empty(t, out)
	require.Regexp(t, `^onerun: "k" is done: web-3 has run it at 20.* UTC; it can run again in (1h0m0s|59m\d+s)\n$`, errs)
	require.Equal(t, 6, first(s.run("run", "--once=1h", "--done-exit=6", "k", "--", "echo", "ran")))
	_, _, errs = s.run("run", "--json", "--once=1h", "k", "--", "echo", "ran")
	var m map[string]any
	require.NoError(t, json.Unmarshal([]byte(errs), &m))
	require.Equal(t, "done", m["outcome"])
	require.Equal(t, "web-3", m["holder"])
}

// A schedule whose period is the window finds a marker that is about to expire. It would skip every
// second tick without a word.
func TestRun_hintsAtAWindowAsLongAsThePeriod(t *testing.T) {
	s := newSite(t)
	require.Equal(t, 0, first(s.run("run", "--once=24h", "k", "--", "true")))
	const hint = "the window of --once counts from the end of the run; for a schedule, use --once-per, or a window shorter than the period"
	for _, test := range []struct {
		left  time.Duration
		hints bool
	}{
		{20 * time.Hour, false}, // another host, or a retry
		{2 * time.Hour, false},
		{time.Hour, true}, // the last run took an hour
		{10 * time.Minute, true},
	} {
		leases, err := s.client.Keys(t.Context(), "onerun:*lease:k").Result()
		require.NoError(t, err)
		require.Len(t, leases, 1)
		require.NoError(t, s.client.PExpire(t.Context(), leases[0], test.left).Err())
		code, _, errs := s.run("run", "--once=24h", "k", "--", "true")
		require.Equal(t, 0, code)
		require.Contains(t, errs, `onerun: "k" is done`)
		require.Equal(t, test.hints, strings.HasSuffix(errs, "\nonerun: "+hint+"\n"), "%v: %s", test.left, errs)
		_, _, errs = s.run("run", "--json", "--once=24h", "k", "--", "true")
		if test.hints {
			require.Equal(t, hint, object(t, errs)["hint"])
		} else {
			require.NotContains(t, object(t, errs), "hint")
		}
	}
}

func TestRun_passesTheStreamsThrough(t *testing.T) {
	s := newSite(t)
	cmd := s.command("run", "k", "--", "sh", "-c", "cat; echo problem >&2")
	cmd.Stdin = strings.NewReader(strings.Repeat("line\n", 10000))
	e := execute(t, cmd)
	require.Equal(t, 0, e.wait())
	require.Equal(t, strings.Repeat("line\n", 10000), e.out.String())
	require.Equal(t, "problem\n", e.errs.String())
}

func TestRun_aReaderSeesThatTheCommandHasClosedItsOutput(t *testing.T) {
	s := newSite(t)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	cmd := s.command("run", "k", "--", "sh", "-c", "echo all; exec >&-; echo >closed; exec sleep 100")
	cmd.Stdout = w
	e := execute(t, cmd)
	require.NoError(t, w.Close())
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "all\n", string(text))
	e.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, e.wait())
}

func TestRun_environment(t *testing.T) {
	s := newSite(t)
	const trace = "0af7651916cd43dd8448eb211c80319c"
	run := func(own []string, args ...string) map[string]string {
		cmd := s.command(append(append([]string{"run"}, args...), "--", "env", "-0")...)
		cmd.Env = append(cmd.Env, own...)
		e := execute(t, cmd)
		require.Equal(t, 0, e.wait(), e.errs.String())
		env := map[string]string{}
		for entry := range strings.SplitSeq(e.out.String(), "\x00") {
			name, value, _ := strings.Cut(entry, "=")
			require.NotContains(t, env, name, "it is there twice")
			env[name] = value
		}
		return env
	}
	one := run([]string{"TRACEPARENT=00-" + trace + "-b7ad6b7169203331-00", "ONERUN_KEY=other", "ONERUN_FENCE=1", "MINE=1"}, "k")
	require.Equal(t, "k", one["ONERUN_KEY"])
	require.Regexp(t, "^[1-9][0-9]{14,}$", one["ONERUN_FENCE"])
	require.Len(t, one["ONERUN_ID"], 26)
	require.NotContains(t, one, "ONERUN_OWNER")
	require.Regexp(t, "^00-"+trace+"-[0-9a-f]{16}-00$", one["TRACEPARENT"])
	require.NotContains(t, one["TRACEPARENT"], "b7ad6b7169203331", "the run is a span of its own")
	require.Equal(t, "1", one["MINE"])

	two := run([]string{"TRACEPARENT=nonsense"}, "--backend=reentrant", "--owner=import 7", "a", "b")
	require.Equal(t, "a\nb", two["ONERUN_KEY"])
	require.Equal(t, "import 7", two["ONERUN_OWNER"])
	require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-01$", two["TRACEPARENT"])
	require.NotEqual(t, one["TRACEPARENT"][3:35], two["TRACEPARENT"][3:35])
	require.Greater(t, run(nil, "k")["ONERUN_FENCE"], one["ONERUN_FENCE"])

	require.Regexp(t, "^[1-9][0-9]{14,}$", run(nil, "b", "a")["ONERUN_FENCE"], "one for both")
	require.Regexp(t, "^[1-9][0-9]{14,}\n[1-9][0-9]{14,}$", run(nil, "--limit=2", "b", "a")["ONERUN_FENCE"], "one for each")
}

func TestRun_theFenceInTheEnvironmentIsThatOfTheStore(t *testing.T) {
	s := newSite(t)
	code, out, _ := s.run("run", "--pass-redis", "--label=me", "k", "--", "sh", "-c", `cli="redis-cli -u $ONERUN_REDIS"; $cli get "$($cli keys '*lease:k')" | tr '\n' ' '; echo; echo $ONERUN_ID $ONERUN_FENCE`)
	require.Equal(t, 0, code)
	lease, own, _ := strings.Cut(strings.TrimSpace(out), "\n")
	require.Len(t, strings.Fields(own), 2)
	for part := range strings.FieldsSeq(own) {
		require.Contains(t, lease, part)
	}
}

// The command gets what it needs, and no password of the store. All variables of flags are tried.
func TestRun_passesNoSecretsUnlessAsked(t *testing.T) {
	s := newSite(t)
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	variables := regexp.MustCompile("env:\"(\\w+)\"").FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, variables)
	values := map[string]string{"ONERUN_REDIS": "redis://:hunter2@" + s.server.Addr(), "ONERUN_BACKEND": "single"}
	require.NoError(t, s.client.ConfigSet(t.Context(), "requirepass", "hunter2").Err())
	for _, asked := range []bool{false, true} {
		args := []string{"run", "k", "--", "env"}
		if asked {
			args = []string{"run", "--pass-redis", "k", "--", "env"}
		}
		cmd := s.command(args...)
		for _, v := range variables {
			cmd.Env = append(cmd.Env, v[1]+"="+values[v[1]])
		}
		e := execute(t, cmd)
		require.Zero(t, e.wait(), e.errs.String())
		require.Equal(t, asked, strings.Contains(e.out.String(), "hunter2"), e.out.String())
		require.Equal(t, asked, strings.Contains(e.out.String(), "ONERUN_REDIS="))
		require.Contains(t, e.out.String(), "ONERUN_BACKEND=single\n")
	}
}

// A folder in PATH that is not absolute is another one in each working directory.
func TestRun_startsNothingFromTheWorkingDirectory(t *testing.T) {
	s := newSite(t)
	require.NoError(t, os.Mkdir(s.path("bin"), 0o700))
	for _, file := range []string{"tool", "bin/tool"} {
		require.NoError(t, os.WriteFile(s.path(file), []byte("#!/bin/sh\necho ran\n"), 0o700))
	}
	for _, path := range []string{"", ":/usr/bin", "/usr/bin:", "/usr/bin::/bin", ".", "/usr/bin:./", "bin"} {
		for _, debug := range []string{"", "execerrdot=0"} {
			cmd := s.command("run", "k", "--", "tool")
			cmd.Env = append(cmd.Env, "PATH="+path, "GODEBUG="+debug)
			e := execute(t, cmd)
			require.Contains(t, []int{126, 127}, e.wait(), "PATH=%s", path)
			require.Empty(t, e.out.String(), "PATH=%s", path)
		}
	}
	require.Zero(t, first(s.run("run", "k", "--", "./tool")), "its name says where it is")
	require.Zero(t, first(s.run("run", "k", "--", "bin/tool")))
}

func TestRun_exitCodesBeforeTheCommand(t *testing.T) {
	s := newSite(t)
	require.NoError(t, os.WriteFile(s.path("plain"), []byte("text"), 0o600))
	require.NoError(t, os.WriteFile(s.path("broken"), []byte("\x7fELF"), 0o700))
	require.NoError(t, os.WriteFile(s.path("bare"), []byte("echo no interpreter\n"), 0o700))
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"not found":       {[]string{"k", "--", "no-such-command"}, 127, "no-such-command"},
		"no such file":    {[]string{"k", "--", "./no-such-file"}, 127, "no-such-file"},
		"no program":      {[]string{"k", "--", "./plain"}, 126, "permission denied"},
		"a broken one":    {[]string{"k", "--", "./broken"}, 126, "exec format error"},
		"no #!":           {[]string{"k", "--", "./bare"}, 126, "exec format error"},
		"a folder":        {[]string{"k", "--", "/tmp"}, 126, "/tmp"},
		"no command":      {[]string{"k"}, 125, "no command"},
		"no key":          {[]string{"--", "true"}, 125, "KEY..."},
		"an empty key":    {[]string{"", "--", "true"}, 125, "key"},
		"bad duration":    {[]string{"--ttl=soon", "k", "--", "true"}, 125, "--ttl"},
		"short TTL":       {[]string{"--ttl=1ms", "k", "--", "true"}, 125, "--ttl: 1ms must be at least"},
		"bad wait":        {[]string{"--wait=long", "k", "--", "true"}, 125, "--wait"},
		"long grace":      {[]string{"--grace=20s", "k", "--", "true"}, 125, "--grace: 20s must be at most 10s, a third of --ttl(30s)"},
		"limit and once":  {[]string{"--limit=2", "--once=1h", "k", "--", "true"}, 125, "--once"},
		"both":            {[]string{"--limit=2", "--shared", "k", "--", "true"}, 125, "--limit"},
		"once of several": {[]string{"--once=1h", "a", "b", "--", "true"}, 125, "--once"},
		"bad backend":     {[]string{"--backend=disk", "k", "--", "true"}, 125, "--backend"},
		"wide -E":         {[]string{"-E", "256", "k", "--", "true"}, 125, "-E: 256 must be from 0 to 255"},
		"negative -E":     {[]string{"--conflict-exit-code=-1", "k", "--", "true"}, 125, "-E: -1 must be from 0 to 255"},
		"wide --done":     {[]string{"--done-exit=1000", "k", "--", "true"}, 125, "--done-exit: 1000 must be"},
		"unknown flag":    {[]string{"--nope", "k", "--", "true"}, 125, "--nope"},
		"fair quorum":     {[]string{"--backend=redlock", "--redis=redis://a:1", "--redis=redis://b:1", "--redis=redis://c:1", "--fair", "k", "--", "true"}, 125, "--fair"},
		"two nodes":       {[]string{"--backend=redlock", "--redis=redis://a:1", "--redis=redis://b:1", "k", "--", "true"}, 125, "--redis"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, errs := s.run(append([]string{"run"}, c.args...)...)
			require.Equal(t, c.code, code, errs)
			require.Empty(t, out)
			require.Contains(t, errs, "onerun: ")
			require.Contains(t, errs, c.says)
		})
	}
	cmd := s.command("run", "k", "--", "true")
	cmd.Env = os.Environ()
	e := execute(t, cmd)
	require.Equal(t, 125, e.wait())
	require.Contains(t, e.errs.String(), "--redis: is missing; ONERUN_REDIS")
	keys, err := s.client.Keys(t.Context(), "*lease*").Result()
	require.NoError(t, err)
	require.Empty(t, keys, "a command that cannot be started leaves no key taken")
}

func TestRun_severalKeys(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "a", "b", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	for _, keys := range [][]string{{"a"}, {"c", "b"}} {
		require.Equal(t, 75, first(s.run(append(append([]string{"run"}, keys...), "--", "true")...)))
	}
	require.Equal(t, 0, first(s.run("run", "c", "--", "true")))
	e.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, e.wait())
	require.Equal(t, 0, first(s.run("run", "b", "a", "--", "true")))
}

func TestRun_sharesAKey(t *testing.T) {
	s := newSite(t)
	s.start("run", "--limit=2", "k", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	require.Equal(t, 0, first(s.run("run", "--limit=2", "k", "--", "true")))
	require.Equal(t, 75, first(s.run("run", "k", "--", "true")))
}

func TestRun_waitsForTheKey(t *testing.T) {
	s := newSite(t)
	holder := s.start("run", "--fair", "k", "--", "sh", "-c", "echo >ready; "+untilGo+"; echo first >>order")
	s.written("ready")
	waiter := s.start("run", "--wait=10s", "--fair", "k", "--", "sh", "-c", "echo second >>order")
	require.Equal(t, 75, first(s.run("run", "--wait=100ms", "k", "--", "true")))
	require.NoError(t, os.WriteFile(s.path("go"), nil, 0o600))
	require.Equal(t, 0, holder.wait())
	require.Equal(t, 0, waiter.wait())
	require.Equal(t, "first\nsecond\n", s.read("order"))
}

func TestRun_maxHoldEndsTheCommandWithItsGracePeriod(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "--max-hold=3s", "--grace=10s", "k", "--", "sh", "-c", "trap 'echo >asked; exit 0' TERM; echo >ready; "+forever)
	start := time.Now()
	require.Equal(t, 124, e.wait())
	require.Less(t, time.Since(start), 13*time.Second, "before the end of the grace period")
	require.Equal(t, "\n", s.read("asked"))
	require.Contains(t, e.errs.String(), "max_hold")
}

// The key is renewed, and the processes that are left get the grace period.
func TestRun_whatIsLeftHasTimeToEnd(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "k", "--", "sh", "-c",
		`sh -c 'trap "sleep 0.3; echo >cleaned; exit" TERM; echo >ready; while :; do sleep 0.05; done' & while ! [ -s ready ]; do sleep 0.05; done`)
	require.Equal(t, 0, e.wait())
	require.Equal(t, "\n", s.read("cleaned"))
}

func TestRun_stopsAndContinuesTheCommand(t *testing.T) {
	s := newSite(t)
	// It starts no program: a shell whose child stops before its exec has another state (vfork).
	require.NoError(t, syscall.Mkfifo(s.path("go"), 0o600))
	e := s.start("run", "k", "--", "sh", "-c", "echo $$ >pid; read line <go; exit 7")
	pid := s.pid("pid")
	state := func(of int) string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", of))
		_, rest, _ := strings.Cut(string(text), ") ")
		return rest[:min(1, len(rest))]
	}
	e.signal(syscall.SIGTSTP)
	s.eventually(func() bool { return state(pid) == "T" && state(e.cmd.Process.Pid) == "T" }, "they do not stop")
	e.signal(syscall.SIGCONT)
	require.NoError(t, os.WriteFile(s.path("go"), []byte("\n"), 0o600))
	require.Equal(t, 7, e.wait())
}

func TestRun_aSignalThatIsIgnoredStaysIgnored(t *testing.T) {
	s := newSite(t)
	cmd := s.command()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `trap '' HUP; exec "$0" run k -- sh -c 'echo >ready; while ! [ -e go ]; do sleep 0.05; done'`, program}
	e := execute(t, cmd)
	s.written("ready")
	e.signal(syscall.SIGHUP)
	require.NoError(t, os.WriteFile(s.path("go"), nil, 0o600))
	require.Equal(t, 0, e.wait(), "as under nohup")
}

// The command is in the foreground: it can read, and Ctrl-C reaches it.
func TestRun_onATerminal(t *testing.T) {
	s := newSite(t)
	ours, theirs := terminal(t)
	cmd := s.command("run", "k", "--", "sh", "-c", `trap 'echo interrupted >result; exit 9' INT; read line; echo "$line" >read; `+forever)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	e := execute(t, cmd)
	_, err := ours.WriteString("typed\n")
	require.NoError(t, err)
	require.Equal(t, "typed", s.written("read"))
	_, err = ours.WriteString("\x03")
	require.NoError(t, err)
	require.Equal(t, 9, e.wait())
	require.Equal(t, "interrupted\n", s.read("result"))
}

// The command was in the background, so reading the terminal stopped it for good.
func TestRun_readsTheTerminalAlthoughStdinIsAPipe(t *testing.T) {
	s := newSite(t)
	ours, theirs := terminal(t)
	cmd := s.command("run", "k", "--", "sh", "-c", "cat >piped; read line </dev/tty; echo \"$line\" >read")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("from the pipe\n"), theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 1}
	e := execute(t, cmd)
	require.Equal(t, "from the pipe", s.written("piped"))
	_, err := ours.WriteString("typed\n")
	require.NoError(t, err)
	require.Equal(t, "typed", s.written("read"))
	require.Equal(t, 0, e.wait())
}

// terminal returns both ends of a pseudoterminal.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = theirs.Close(), ours.Close() })
	return ours, theirs
}

func TestKeeper_isNotForUsers(t *testing.T) {
	t.Parallel()
	empty, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer func() { _ = empty.Close() }()
	for _, files := range [][]*os.File{nil, {empty, empty}} { // that the caller has left open
		cmd := exec.CommandContext(t.Context(), program, "_keeper")
		cmd.ExtraFiles = files
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Contains(t, string(out), "only for onerun itself")
	}
}

func TestRun_onAQuorum(t *testing.T) {
	s := newSite(t)
	nodes := redistest.StartN(t, 3)
	var urls []string
	for _, node := range nodes {
		urls = append(urls, "redis://"+node.Addr())
	}
	run := func(args ...string) *execution {
		cmd := s.command(append([]string{"run", "--backend=redlock"}, args...)...)
		cmd.Env = append(cmd.Env, "ONERUN_REDIS="+strings.Join(urls, ","))
		return execute(t, cmd)
	}
	nodes[1].Kill()
	holder := run("k", "--", "sh", "-c", "echo >ready; "+untilGo)
	s.written("ready")
	require.Equal(t, 75, run("k", "--", "true").wait())
	require.NoError(t, os.WriteFile(s.path("go"), nil, 0o600))
	require.Equal(t, 0, holder.wait())
	nodes[2].Kill()
	require.Equal(t, 125, run("k", "--", "true").wait(), "there is no majority")
}

func TestRun_saysThatTheKeeperHasDied(t *testing.T) {
	s := newSite(t)
	e := s.start("run", "k", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	require.NoError(t, syscall.Kill(e.keeper(), syscall.SIGKILL))
	require.Equal(t, 125, e.wait())
	require.Contains(t, e.errs.String(), "keeper")
}

func TestRun_warnsOfAMarkerThatMayBeMissing(t *testing.T) {
	s := newSite(t)
	pid := s.server.PID()
	e := s.start("run", "--once=1h", "--ttl=3s", "k", "--", "kill", "-STOP", strconv.Itoa(pid))
	require.Equal(t, 0, e.wait(), "the command has succeeded")
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	require.Contains(t, e.errs.String(), "done marker may be missing")
}
