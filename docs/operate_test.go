package docs_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

const operate = "docs/operate.md"

// The processes of the page.
const (
	web1 = "web-1 pid 8031"
	web2 = "web-2 pid 7100"
)

// A desk is where an operator types what the page says.
type desk struct {
	*testing.T
	server *redistest.Server
	dir    string // has backup.sh
	bin    string // has the command onerun
}

// An operator who types the commands of the page, from the clone on, gets the answers that it
// shows. On the server are a lease, a done marker and two jobs with their ticks.
func TestOperate_commandsRun(t *testing.T) {
	t.Parallel()
	d := &desk{T: t, server: redistest.Start(t), dir: t.TempDir(), bin: t.TempDir()}
	text := strings.NewReplacer(
		"10.0.0.5:6379", d.server.Addr(), "127.0.0.1:6379", d.server.Addr(),
		"/usr/local/bin", d.bin, "/opt/", d.dir+"/",
	).Replace(readPage(t, operate))
	script := []byte("#!/bin/sh\necho backing up, fence $ONERUN_FENCE\n")
	require.NoError(t, os.WriteFile(filepath.Join(d.dir, "backup.sh"), script, 0o700))
	d.work()

	blocks := docBlock.FindAllStringSubmatch(text, -1)
	require.Equal(t, "sh", blocks[0][1], "how to install it")
	d.run("set -eu; PATH=" + stubs(t) + ":$PATH; " + blocks[0][2])
	require.FileExists(t, filepath.Join(d.bin, "onerun"))
	ran := 0
	for _, block := range blocks {
		if block[1] == "text" {
			ran += d.runBlock(block[2])
		}
	}
	require.Greater(t, ran, 15, "they were found")
}

// work puts on the server what the page shows.
func (d *desk) work() {
	d.Helper()
	g, err := guard.New(single.New(d.server.Client(d.T)), guard.WithoutNamespace(), guard.WithLabel(web1))
	require.NoError(d, err)
	ended, end := context.WithCancel(context.Background())
	d.Cleanup(func() { end(); _ = g.Close(ended) })
	_, err = g.Acquire(d.Context(), "nightly-report", guard.WithName("report"))
	require.NoError(d, err)
	backUp := func(context.Context) error { return nil }
	require.NoError(d, g.Do(d.Context(), "nightly-backup", backUp, guard.WithOnce(24*time.Hour)))

	jobs, err := guard.New(single.New(d.server.Client(d.T)), guard.WithoutNamespace(), guard.WithLabel(web1))
	require.NoError(d, err)
	d.Cleanup(func() { _ = jobs.Close(ended) })
	_, err = jobs.Acquire(d.Context(), "cron:nightly report")
	require.NoError(d, err)
	foreign := d.server.Client(d.T).Set(d.Context(), "job-lock:report", "ADDED:2026-11-26@web-1", time.Minute)
	require.NoError(d, foreign.Err())

	ledger, ok := g.Adapter().Ledger()
	require.True(d, ok)
	d.recordTicks(ledger)
	i, err := inspect.New(g)
	require.NoError(d, err)
	require.Eventually(d, func() bool { // a process reports what it has held for a second
		held, _ := g.Adapter().Held(time.Second, 1)
		return len(held) == 1
	}, 10*time.Second, 10*time.Millisecond)
	announced := make(chan struct{})
	go func() { defer close(announced); _ = i.Announce(ended) }()
	d.Cleanup(func() { end(); <-announced })
	require.Eventually(d, func() bool {
		all, err := i.Processes(d.Context())
		return err == nil && len(all) == 1
	}, 10*time.Second, 10*time.Millisecond)
}

// recordTicks writes down the jobs, and the ticks of one.
func (d *desk) recordTicks(ledger driver.Ledger) {
	d.Helper()
	last := time.Now().UTC().Truncate(time.Minute)
	for _, job := range []string{"nightly report", "nightly backup"} {
		require.NoError(d, cronlog.Announce(d.Context(), ledger, job, "0 3 * * *"))
	}
	for i, r := range []guardcron.Record{
		{Result: guardcron.Skipped, Who: web2, Reason: "the job is paused"},
		{Result: guardcron.Ran, Who: web1, End: last.Add(1200 * time.Millisecond)},
		{
			Result: guardcron.Failed, Who: web2, End: last.Add(800 * time.Millisecond),
			Reason: "unexpected EOF",
		},
		{Result: guardcron.Ran, Who: web1, End: last.Add(1200 * time.Millisecond)},
	} {
		earlier := -time.Duration(i) * time.Minute
		if r.Tick = last.Add(earlier); !r.End.IsZero() {
			r.Start, r.End, r.Fence = r.Tick, r.End.Add(earlier), uint64(9-i)
		}
		require.NoError(d, cronlog.Record(d.Context(), ledger, "nightly report", r))
	}
}

// run runs a script as an operator does, and returns what it prints.
func (d *desk) run(script string) string {
	d.Helper()
	cmd := exec.CommandContext(d.Context(), "bash", "-c", script)
	cmd.Dir = d.dir
	cmd.Env = append(
		os.Environ(),
		"PATH="+d.bin+":"+os.Getenv("PATH"),
		"ONERUN_REDIS=redis://"+d.server.Addr(),
		"ONERUN_ACTOR=alice",
	)
	out, err := cmd.CombinedOutput()
	var exited *exec.ExitError
	if errors.As(err, &exited) && exited.ExitCode() == 1 &&
		strings.Contains(string(out), " problem") {
		err = nil // that of doctor
	}
	require.NoError(d, err, "%s\n%s", script, out)
	return string(out)
}

// set sets a parameter of the server.
func (d *desk) set(parameter, value string) {
	d.Helper()
	require.NoError(d, d.server.Client(d.T).ConfigSet(d.Context(), parameter, value).Err())
}

var cronLine = regexp.MustCompile(`(?m)^[*\d]+(?: [*\d]+){4} +(onerun .*)$`)

// runBlock runs the commands of a block, each after a "$", and those of a crontab. It returns how
// many there were.
func (d *desk) runBlock(block string) (ran int) {
	d.Helper()
	for _, line := range cronLine.FindAllStringSubmatch(block, -1) {
		require.Contains(d, d.run(line[1]), "backing up")
		d.run("onerun forget nightly-backup") // it is the next night
		ran++
	}
	if strings.HasPrefix(block, "single: ") { // the end of the output of doctor on a good server
		d.set("maxmemory-policy", "noeviction")
		_, got, _ := strings.Cut(d.run("onerun doctor"), "\n\n")
		d.requireShape("onerun doctor", block, got)
		return 1
	}
	for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
		command, want, _ := strings.Cut(part, "\n")
		if command == "onerun doctor" {
			d.set("maxmemory", "100mb")
			d.set("maxmemory-policy", "allkeys-lru")
		}
		d.requireShape(command, want, d.run(command))
		ran++
	}
	return ran
}

// varies is what differs from run to run.
var varies = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC`), "INSTANT"},
	{regexp.MustCompile(`\b[A-Z2-7]{26}\b`), "ID"},
	{regexp.MustCompile(`\b\d{15,}\b`), "FENCE"},
	{regexp.MustCompile(`-?\b(\d+(\.\d+)?(h|ms|m|µs|s))+`), "SPAN"},
	{regexp.MustCompile(`Redis \d+\.\d+\.\d+`), "VERSION"},
	{regexp.MustCompile(` +\n`), "\n"},
	{regexp.MustCompile(` {2,}`), "  "}, // columns are as wide as what is in them
}

// requireShape asserts that a command prints what the page shows, but for times, IDs and so on.
func (d *desk) requireShape(command, want, got string) {
	d.Helper()
	host, err := os.Hostname()
	require.NoError(d, err)
	got = regexp.MustCompile(regexp.QuoteMeta(host)+` pid \d+`).ReplaceAllString(got, web1)
	for _, v := range varies {
		want = v.pattern.ReplaceAllString(want, v.word)
		got = v.pattern.ReplaceAllString(got, v.word)
	}
	require.Equal(d, strings.TrimSpace(want), strings.TrimSpace(got), command)
}

// The commands and flags that the page names in its text and its tables exist, and it names all.
func TestOperate_namesAllCommandsAndFlags(t *testing.T) {
	t.Parallel()
	dir := buildOnerun(t)
	help := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "onerun"), append(args, "--help")...).
			CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	text := fencedCode.ReplaceAllString(readPage(t, operate), "")
	_, table, _ := strings.Cut(text, "## All commands")
	table, _, _ = strings.Cut(table, "\n## ")
	var named []string
	for _, cell := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(table, -1) {
		for _, found := range regexp.MustCompile("`([a-z]+)").FindAllStringSubmatch(cell[1], -1) {
			named = append(named, found[1])
		}
	}
	var exist []string
	usage := regexp.MustCompile(`(?m)^  ([a-z]+) .*\[flags\]`)
	for _, found := range usage.FindAllStringSubmatch(help(), -1) {
		exist = append(exist, found[1])
	}
	slices.Sort(named)
	slices.Sort(exist)
	exist = slices.Compact(exist) // "key" has commands of its own
	require.Equal(t, exist, slices.Compact(named))
	all := help()
	for _, name := range exist {
		all += help(name)
	}
	for _, found := range ownCommand.FindAllStringSubmatch(text, -1) {
		require.Contains(t, exist, found[1])
	}
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)").FindAllStringSubmatch(text, -1) {
		require.Contains(t, all, flag[1], "%s is no flag", flag[1])
	}
}

// All commands print JSON.
func TestOperate_commandsPrintJSON(t *testing.T) {
	t.Parallel()
	d := &desk{T: t, server: redistest.Start(t), dir: t.TempDir(), bin: buildOnerun(t)}
	d.work()
	for _, command := range []string{
		"show nightly-report", "ls", "hold k --for 2h", "break nightly-report", "jobs", "ps", "log",
		"forget nightly-backup", "records 'nightly report'", "pause 'nightly*'", "resume 'nightly*'",
		"trigger 'nightly report'", "doctor",
	} {
		out := d.run("onerun --json " + command)
		require.True(t, json.Valid([]byte(out)), "%s: %s", command, out)
	}
}
