package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/internal/printable"
)

// forged begins the lines that a text must not begin.
const forged = "forged"

// nasty are texts that a terminal acts on, that begin a line of their own, or that look like the
// text after them.
var nasty = []string{
	"esc \x1b[2J\x1b[31m", `esc \x1b[2J\x1b[31m`, "title \x1b]0;owned\a", "c1 \u009b31m", "c1 31m",
	"row\n" + forged + " held 1h", `row\n` + forged + " held 1h", "return\r" + forged, "column\t" + forged + "\vx\fy",
	"bidi \u202egnp.exe", "bidi gnp.exe", "isolate \u2066x\u2069", "zero\u200bwidth", "zerowidth", "bom\ufeffx",
	"separator \u2028" + forged, "selector \ufe0fx", "latin \xe9", "latin \ufffd", "del \x7fx", "<b>html</b> &amp;",
	"two  spaces", "two spaces", "ends with one ", "ends with one", "pile z" + strings.Repeat("\u0301", 9),
}

// nastyJobs are the names of jobs, which must be valid UTF-8.
var nastyJobs = slices.DeleteFunc(slices.Clone(nasty), func(text string) bool { return !utf8.ValidString(text) })

// shows requires that what was printed has all texts, escaped, and nothing that a terminal acts on.
func shows(t *testing.T, name, out string, texts ...string) {
	t.Helper()
	require.True(t, utf8.ValidString(out), "%s: %q", name, out)
	require.Negative(t, strings.IndexFunc(out, func(r rune) bool {
		return r != '\n' && (!unicode.IsPrint(r) || unicode.In(r, unicode.Variation_Selector))
	}), "%s: %q", name, out)
	require.NotRegexp(t, `\p{M}{5}`, out, name)
	for line := range strings.Lines(out) {
		require.False(t, strings.HasPrefix(strings.TrimSpace(line), forged), "%s: %q", name, out)
	}
	for _, text := range texts {
		require.Contains(t, out, printable.Text(strings.TrimRight(text, " ")), name)
	}
}

// What a key, a label, an owner, an actor, a reason, a job or an error is called moves no cursor,
// forges no line, and looks like no other.
func TestPrinted_textsOfOthersAreEscaped(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	var all []*inspect.Inspector
	var newest *guard.Guard
	jobs, ran := map[string]func(context.Context) error{}, map[string]*atomic.Int64{}
	for _, text := range nasty {
		for _, store := range []guard.Locker{single.New(s.client), reentrant.New(s.client)} {
			g, err := guard.New(store, guard.WithoutNamespace(), guard.WithLabel(text), guard.WithOwner(text))
			require.NoError(t, err)
			l, err := g.Acquire(ctx, text)
			require.NoError(t, err)
			t.Cleanup(func() {
				_ = l.Release(context.Background())
				require.NoError(t, g.Close(context.Background()))
			})
			require.NoError(t, g.Do(ctx, "done "+text, func(context.Context) error { return nil }, guard.WithOnce(time.Hour)))
			i, err := inspect.New(g)
			require.NoError(t, err)
			_, err = i.Hold(ctx, "hold "+text, time.Hour, inspect.By{Actor: text, Reason: text})
			require.NoError(t, err)
			all, newest = append(all, i), g
		}
	}
	for _, text := range nastyJobs {
		n := &atomic.Int64{}
		ran[text] = n
		jobs[text] = func(context.Context) error {
			n.Add(1)
			return errors.New(text)
		}
	}
	s.cron(jobs)
	printed := func(args ...string) string {
		_, out, errs := s.run(args...)
		return out + errs
	}
	s.eventually(func() bool { // a job runs again after the record of a run was written
		return !slices.ContainsFunc(slices.Collect(maps.Values(ran)), func(n *atomic.Int64) bool { return n.Load() < 2 })
	}, "all jobs run")
	s.eventually(func() bool { held, _ := newest.Adapter().Held(time.Second, 1); return len(held) > 0 }, "younger leases are not reported")
	announcing, cancel := context.WithCancel(ctx)
	var announced sync.WaitGroup
	for _, i := range all {
		announced.Go(func() { _ = i.Announce(announcing) })
	}
	t.Cleanup(func() { cancel(); announced.Wait() })
	s.eventually(func() bool {
		processes := printed("ps")
		return !slices.ContainsFunc(nastyJobs, func(text string) bool {
			text = regexp.QuoteMeta(printable.Text(text))
			return !regexp.MustCompile(`(?m)^` + text + `  +` + text + ` `).MatchString(processes)
		})
	}, "the processes report")

	backends := []string{"--backend=single", "--backend=reentrant"}
	for _, backend := range backends {
		shows(t, "ls", printed("ls", backend), nasty...)
		shows(t, "log", printed("log", backend, "-n100"), nasty...)
		shows(t, "doctor", printed("doctor", backend))
	}
	shows(t, "ps", printed("ps"), nastyJobs...)
	shows(t, "jobs", printed("jobs"), nastyJobs...)
	// Package printable has the tests of all texts: these commands have one of each kind.
	for _, text := range []string{nasty[0], "row\n" + forged + " held 1h", "bidi \u202egnp.exe", "latin \xe9"} {
		for _, key := range []string{text, "done " + text, "hold " + text} {
			shows(t, "show", printed("show", key), key, text)
			shows(t, "run", printed("run", key, "--once=1h", "--", "true"))
		}
		shows(t, "show of an owner", printed("show", "--backend=reentrant", text), text)
		shows(t, "show elsewhere", printed("show", "--namespace=other", text), text)
		shows(t, "show --json", printed("show", "--json", text))
		shows(t, "records", printed("records", text), text)
		shows(t, "hold", printed("hold", text, "--for=1s"))
		if utf8.ValidString(text) {
			shows(t, "pause", printed("pause", text, "--by="+text, "--why="+text), text)
		}
		shows(t, "no job", printed("pause", "other "+text))
		shows(t, "break", printed("break", "--now", "hold "+text), text)
		shows(t, "nobody", printed("break", "other "+text), "other "+text)
		shows(t, "forget", printed("forget", "done "+text), "done "+text)
		shows(t, "not done", printed("forget", text), text)
		shows(t, "no flag", printed("--"+text))
		shows(t, "no server", printed("--redis="+text, "ls"))
		shows(t, "no file", printed("--tls-ca="+text, "ls"))
		shows(t, "no program", printed("run", "free", "--", text+"/program"))
	}
	for _, command := range []string{"ls", "log", "ps", "jobs", "doctor"} {
		out := printed(command, "--json")
		shows(t, command, out)
		require.True(t, json.Valid([]byte(out)), out)
	}
}

// A new command cannot forget to escape: nothing but package terminal prints.
func TestPrinted_allOutputPassesOnePackage(t *testing.T) {
	t.Parallel()
	prints := regexp.MustCompile(`fmt\.(Print|Fprint\w*\((os\.|w\b|to\b))|\bprintln\(|json\.NewEncoder|\bio\.WriteString|os\.Std(out|err)\.Write`)
	own, err := filepath.Glob("*.go")
	require.NoError(t, err)
	doctor, err := filepath.Glob("internal/doctor/*.go")
	require.NoError(t, err)
	for _, name := range append(own, doctor...) {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Empty(t, prints.FindAllString(string(text), -1), name)
	}
}

// A program reads the strings of --json as they are.
func TestPrinted_jsonHasTheTextsThemselves(t *testing.T) {
	s := newSite(t)
	for _, text := range []string{nasty[0], "bidi \u202egnp.exe", "latin \xe9"} {
		code, out, errs := s.run("show", "--json", text)
		require.Zero(t, code, errs)
		var v struct {
			Key   string `json:"key"`
			Bytes []byte `json:"key_bytes"`
		}
		require.NoError(t, json.Unmarshal([]byte(out), &v))
		if !utf8.ValidString(text) {
			v.Key = string(v.Bytes)
		}
		require.Equal(t, text, v.Key)
	}
}

// The same on a terminal, which gets what is printed and nothing else.
func TestPrinted_onATerminal(t *testing.T) {
	s := newSite(t)
	const text = "report\x1b[2J\r\n" + forged + " \u202ex"
	require.Zero(t, first(s.run("hold", "--for=1h", "--by="+text, "--why="+text, text)))
	for _, args := range [][]string{{"ls"}, {"show", text}, {"log"}} {
		ours, theirs := terminal(t)
		cmd := s.command(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		e := execute(t, cmd)
		require.Zero(t, e.wait())
		shows(t, args[0], strings.ReplaceAll(s.displayed(ours, theirs), "\r\n", "\n"), text)
	}
}

// displayed returns all that a terminal has received. A single read may return a part of it.
func (s *site) displayed(ours, theirs *os.File) string {
	s.t.Helper()
	require.NoError(s.t, theirs.Close())
	all, err := io.ReadAll(ours)
	require.ErrorIs(s.t, err, syscall.EIO) // at the end of a terminal that no process has open
	return string(all)
}
