package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// onPlain returns onerun's arguments with --plain.
func onPlain(args ...string) []string {
	return append([]string{args[0], "--plain=job-lock:%s"}, args[1:]...)
}

// A lock of redsync, redislock, redis-py or a SETNX by hand keeps a run out. The operator sees it,
// and breaks it if it is still the one that was seen.
func TestPlain_foreignLocks(t *testing.T) {
	for name, value := range map[string]string{
		"a token": "bG9jaw==", "ShedLock": "ADDED:2026-11-26T12:00:00Z@web-1", "by hand": "1", "empty": "",
		"binary": "\x00\xff\n", "long": strings.Repeat("x", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			set := func(value string) {
				require.NoError(t, s.client.Set(t.Context(), "job-lock:report", value, time.Minute).Err())
			}
			set(value)
			code, out, errs := s.run(onPlain("run", "report", "--", "echo", "ran")...)
			require.Equal(t, 75, code, errs)
			require.Empty(t, out)
			require.Equal(t, "onerun: \"report\" is busy: another library holds it\n", errs)
			_, out, _ = s.run(onPlain("show", "report")...)
			require.Regexp(t, `(?s)^report is held\n  left +\S+, by another library\n  id +\S+\n  other`, out)
			_, out, _ = s.run(onPlain("ls")...)
			require.Regexp(t, `(?m)^report +held +\S* *\S+ +\S+`, out)

			var k struct{ Holders []struct{ ID string } }
			_, out, _ = s.run(onPlain("show", "--json", "report")...)
			require.NoError(t, json.Unmarshal([]byte(out), &k))
			id := k.Holders[0].ID
			require.Equal(t, 125, first(s.run(onPlain("break", "report")...)), "only with --now")
			set(value + "2")
			require.Equal(t, 1, first(s.run(onPlain("break", "--now", "report", "--", id)...)), "another holds it by now")
			set(value)
			code, _, errs = s.run(onPlain("break", "--now", "report", "--", id)...)
			require.Zero(t, code, errs)
			require.Zero(t, first(s.run(onPlain("run", "report", "--", "true")...)))
		})
	}
}

// Our own lease has the plain name, too, and ONERUN_PLAIN names it for all commands.
func TestPlain_variable(t *testing.T) {
	s := newSite(t)
	cmd := s.command("run", "--once=1h", "report", "--", "true")
	cmd.Env = append(cmd.Env, "ONERUN_PLAIN=%s")
	require.Zero(t, execute(t, cmd).wait())
	require.EqualValues(t, 1, s.client.Exists(t.Context(), "report").Val())
	_, out, _ := s.run("show", "--plain=%s", "report")
	require.Contains(t, out, "report is done")
	for _, command := range []string{"ls", "ps", "jobs", "log"} {
		require.Zero(t, first(s.run(command, "--plain=%s")))
	}
	code, out, _ := s.run("doctor", "--plain=%s")
	require.Zero(t, code, out)
	require.Regexp(t, `ok +try single +works`, out)
}

func TestPlain_refusals(t *testing.T) {
	s := newSite(t)
	for want, args := range map[string][]string{
		`--plain: "report" must have one %s`:    {"show", "--plain=report", "k"},
		`--plain: "%s%s" must have one %s`:      {"show", "--plain=%s%s", "k"},
		"--plain: has no effect with":           {"show", "--plain=%s", "--backend=reentrant", "k"},
		"--limit and --shared do not work with": {"run", "--plain=%s", "--limit=3", "k", "--", "true"},
	} {
		code, _, errs := s.run(args...)
		require.Equal(t, 125, code)
		require.Contains(t, errs, want)
	}
}

// With RedLock, a lock of redsync on most servers keeps a run out, and one on a minority does not.
func TestPlain_onAQuorum(t *testing.T) {
	s := newSite(t)
	nodes := redistest.StartN(t, 3)
	flags := []string{"--backend=redlock", "--plain=job-lock:%s"}
	for _, node := range nodes {
		flags = append(flags, "--redis=redis://"+node.Addr())
	}
	on := func(args ...string) (code int, out, errs string) {
		return s.run(append([]string{args[0]}, append(flags, args[1:]...)...)...)
	}
	lock := func(node *redistest.Server) {
		require.NoError(t, node.Client(t).Set(t.Context(), "job-lock:report", "bG9jaw==", time.Minute).Err())
	}
	lock(nodes[0])
	code, out, errs := on("run", "report", "--", "echo", "ran")
	require.Zero(t, code, errs)
	require.Equal(t, "ran\n", out)
	lock(nodes[1])
	code, out, errs = on("run", "report", "--", "echo", "ran")
	require.Equal(t, 75, code, errs)
	require.Empty(t, out)
	_, out, _ = on("show", "report")
	require.Regexp(t, `(?s)^report is held\n.* by another library\n +id +bG9jaw==\n`, out)
	code, out, errs = on("break", "--now", "report")
	require.Zero(t, code, errs)
	require.Contains(t, out, "that library learns nothing of it")
	require.Zero(t, first(on("run", "report", "--", "true")))

	require.Zero(t, first(on("run", "--once=1h", "nightly", "--", "true")))
	for _, node := range nodes {
		require.EqualValues(t, 1, node.Client(t).Exists(t.Context(), "job-lock:nightly").Val())
	}
}
