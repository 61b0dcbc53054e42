package main_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// bare returns onerun without any server.
func (s *site) bare(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Dir, cmd.Env = s.dir, os.Environ()
	return cmd
}

// announce writes that a process last started with a job that long ago.
func (s *site) announce(job, spec string, ago time.Duration) {
	s.t.Helper()
	g, err := guard.New(single.New(s.client), guard.WithoutNamespace())
	require.NoError(s.t, err)
	ledger, ok := g.Adapter().Ledger()
	require.True(s.t, ok)
	seen := time.Now().UTC().Add(-ago).Truncate(time.Hour)
	require.NoError(s.t, cronlog.Append(s.t.Context(), ledger, "cron-jobs", seen, guardcron.JobInfo{Name: job, Spec: spec, Seen: seen}))
	require.NoError(s.t, g.Close(s.t.Context()))
}

// What an operator knows of a request, a call, a task or a job leads to its key. The keys of the
// middlewares are those that the packages printed.
func TestKey_ofWhatPeopleKnow(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"http:AUQCUWxpLSg72MONRpUf2LIAVhY3z2RaFvKlbj4b6zA":  {"http", "--scope", "alice", "POST", "/claims", "k1"},
		"http:M4B85q-qUbV9M7NaiA7gXffXZ5k54GDNGC4wOSIfEIY":  {"http", "--scope=alice", "--stripped=/claims%20x", "post", "/api/claims%20x?q=1", "k1"},
		"grpc:dN5ppf1DavUq1yJXcocOIXaX7IZ7UV8UDSEuJzCDTIs":  {"grpc", "--scope", "alice", "/shop.Orders/Create", "k1"},
		"asynq:j1YFhB__MGPAEmnCT7hBaSh85z7k6nyjgrOWR08h7UA": {"asynq", "invoice:send", "type"},
		"asynq:c8ZQPRgLX8Vny6rE_geSNIwPzxhRNmn1dO-OQIyHbEI": {"asynq", "--once", "invoice:send", "type"},
		"cron:nightly report":                               {"cron", "nightly report"},
		"gocron:nightly report":                             {"cron", "--gocron", "nightly report"},
	} {
		s := &site{t: t, dir: t.TempDir()}
		cmd := s.bare(append([]string{"key"}, args...)...)
		e := execute(t, cmd)
		require.Zero(t, e.wait(), e.errs.String())
		require.Equal(t, want+"\n", e.out.String())
	}
}

func TestShow_findsTheKeyOfAJob(t *testing.T) {
	s := newSite(t)
	g, err := guard.New(single.New(s.client), guard.WithoutNamespace(), guard.WithLabel("web-1"))
	require.NoError(t, err)
	ended, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); _ = g.Close(ended) })
	for _, key := range []string{"cron:nightly", "gocron:hourly"} {
		_, err := g.Acquire(t.Context(), key)
		require.NoError(t, err)
	}
	_, out, _ := s.run("show", "nightly")
	require.Regexp(t, `(?s)^nightly is free; the key cron:nightly of that name is not\ncron:nightly is held\n +by +web-1\n`, out)
	_, out, _ = s.run("show", "hourly")
	require.Contains(t, out, "gocron:hourly is held")
	_, out, _ = s.run("show", "--json", "nightly")
	require.Regexp(t, `(?s)"related": \[\s+{\s+"key": "cron:nightly"`, out)
	_, out, _ = s.run("show", "unknown")
	require.Equal(t, "unknown is free\n", out)

	// A log line has the redacted form of the key.
	code, out, _ := s.run("key", "redacted", "6a4f2e5e5a0e5b0c")
	require.Equal(t, 1, code, out)
	code, out, errs := s.run("key", "redacted", redactedNightly)
	require.Zero(t, code, errs)
	require.Equal(t, "cron:nightly\n", out)
}

// redactedNightly is tracing.Redact("cron:nightly").
const redactedNightly = "fe69afa11fc13947"

// wanted is explained.
func TestShow_explainsWanted(t *testing.T) {
	s := newSite(t)
	s.start("run", "--shared", "k", "--", "sh", "-c", "echo >ready; exec sleep 100")
	s.written("ready")
	s.start("run", "--wait=forever", "k", "--", "true")
	s.eventually(func() bool {
		_, out, _ := s.run("show", "k")
		return strings.Contains(out, ", a waiter for which newcomers are kept away")
	}, "the writer is not wanted")
}

func TestHelp_isACommand(t *testing.T) {
	t.Parallel()
	s := &site{t: t, dir: t.TempDir()}
	for _, args := range [][]string{{"help"}, {"help", "run"}, {"help", "key", "http"}} {
		e := execute(t, s.bare(args...))
		require.Zero(t, e.wait(), e.errs.String())
		require.Contains(t, e.out.String(), "Usage: onerun ")
		if len(args) > 1 {
			require.Contains(t, e.out.String(), "Usage: onerun "+args[1])
		}
	}
}

func TestJobs_sayThatNoProcessHasOne(t *testing.T) {
	s := newSite(t)
	s.announce("daily", "0 3 * * *", 72*time.Hour)
	s.announce("lately", "0 3 * * *", 24*time.Hour)
	s.announce("hourly", "@hourly", 12*time.Hour)
	s.announce("unknown spec", "", 1000*time.Hour)
	_, out, _ := s.run("jobs")
	require.Regexp(t, `(?m)^daily +0 3 \* \* \* +- +no process has it `, out)
	require.Regexp(t, `(?m)^lately +0 3 \* \* \* +- +active `, out)
	require.Regexp(t, `(?m)^hourly +@hourly +- +no process has it `, out)
	require.Regexp(t, `(?m)^unknown spec +- +- +active `, out)
}
