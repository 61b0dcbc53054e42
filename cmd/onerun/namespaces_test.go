package main_test

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
)

// A key that is free in the namespace of the command, and not in another one, is found there.
func TestNamespaces_aKeyThatIsFreeHereIsFoundElsewhere(t *testing.T) {
	s := newSite(t)
	billing, err := guard.New(single.New(s.client), guard.WithNamespace("billing"), guard.WithLabel("web-1"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, billing.Close(context.Background())) })
	lease, err := billing.Acquire(t.Context(), "report")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lease.Release(context.Background())) })
	require.NoError(t, billing.Do(t.Context(), "invoice", func(context.Context) error { return nil }, guard.WithOnce(time.Hour)))
	alone, err := guard.New(single.New(s.client), guard.WithLabel("web-2"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, alone.Close(context.Background())) })
	own, err := alone.Acquire(t.Context(), "import")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, own.Release(context.Background())) })

	const held = "under the namespace billing it is held by web-1; use --namespace billing\n"
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"show", "report"}, 0, "report is free; " + held},
		{[]string{"show", "report", "--namespace=shop"}, 0, "report is free; " + held},
		{[]string{"show", "invoice"}, 0, "invoice is free; under the namespace billing it is done by web-1; use --namespace billing\n"},
		{[]string{"show", "import", "--namespace=billing"}, 0, "import is free; without a namespace it is held by web-2; use --namespace \"\"\n"},
		{[]string{"break", "report"}, 1, "nobody holds report; " + held},
		{[]string{"forget", "invoice"}, 1, "invoice is not done; under the namespace billing it is done by web-1; use --namespace billing\n"},
		{[]string{"show", "port"}, 0, "port is free\n"},
		{[]string{"show", "unknown"}, 0, "unknown is free\n"},
	} {
		code, out, errs := s.run(c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errs)
		require.Equal(t, c.text, out, c.args)
	}
	_, out, _ := s.run("show", "report", "--json")
	var shown struct {
		State     string
		Elsewhere []struct{ Namespace, Key, State string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &shown))
	require.Equal(t, "free", shown.State)
	require.Equal(t, []struct{ Namespace, Key, State string }{{"billing", "report", "held"}}, shown.Elsewhere)
	_, out, _ = s.run("show", "report", "--namespace=billing")
	require.Regexp(t, `^report is held\n`, out, "here")
}

func TestNamespaces_jobsAndDoctorSayWhichOneTheyShow(t *testing.T) {
	s := newSite(t)
	for _, namespace := range []string{"billing", "shop"} {
		g, err := guard.New(single.New(s.client), guard.WithNamespace(namespace))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
		ledger, ok := g.Adapter().Ledger()
		require.True(t, ok)
		require.NoError(t, cronlog.Announce(t.Context(), ledger, "report of "+namespace, "@daily"))
		lease, err := g.Acquire(t.Context(), "cron:report")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, lease.Release(context.Background())) })
	}
	_, out, _ := s.run("jobs")
	require.Equal(t, "no process has announced a job without a namespace\n--namespace chooses another: billing, shop\n", out)
	_, out, _ = s.run("jobs", "--namespace=billing")
	require.Regexp(t, `^jobs of the namespace billing:\nJOB .*\nreport of billing `, out)
	require.NotContains(t, out, "shop", "a job of another service")
	_, out, _ = s.run("jobs", "--namespace=shop", "--json")
	var jobs []struct{ Name, Namespace string }
	require.NoError(t, json.Unmarshal([]byte(out), &jobs))
	require.Equal(t, []struct{ Name, Namespace string }{{"report of shop", "shop"}}, jobs)

	_, out, _ = s.run("doctor")
	require.Contains(t, out, "\ncommands look at keys of no namespace; --namespace chooses others: namespace billing (1 key), namespace shop (1 key)\n")
	_, out, _ = s.run("doctor", "--namespace=billing")
	require.Regexp(t, `\ncommands look at keys of namespace billing; --namespace chooses others: .*namespace shop \(1 key\)\n`, out)
	_, out, _ = s.run("doctor", "--json")
	var report struct {
		Namespaces []struct {
			Name   string
			Keys   int
			Chosen bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(out), &report))
	require.Len(t, report.Namespaces, 3)
	require.True(t, report.Namespaces[0].Chosen)
}

// A person who runs a command learns that the key of another namespace is held: that holder does
// not keep the run out. A crontab does not pay for the search.
func TestNamespaces_runHintsAtAnotherHolder(t *testing.T) {
	s := newSite(t)
	for _, namespace := range []string{"", "billing"} {
		args := []string{"run", "--namespace=" + namespace, "--label=web-1", "report", "--", "sh", "-c", "echo >held" + namespace + "; exec sleep 100"}
		s.start(args...)
		s.written("held" + namespace)
	}
	for _, c := range []struct{ namespace, key, says string }{
		{"shop", "report", "onerun: \"report\" of this run is another key; without a namespace it is held by web-1; " +
			"use --namespace \"\"; under the namespace billing it is held by web-1; use --namespace billing\n"},
		{"shop", "other", ""},
	} {
		args := []string{"run", "--namespace=" + c.namespace, c.key, "--", "true"}
		ours, theirs := terminal(t)
		cmd := s.command(args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		require.Zero(t, execute(t, cmd).wait())
		_, err := theirs.WriteString("end")
		require.NoError(t, err)
		require.Equal(t, c.says+"end", strings.ReplaceAll(s.displayed(ours, theirs), "\r\n", "\n"))
		_, _, errs := s.run(args...)
		require.Empty(t, errs, "nobody reads it at a terminal")
	}
}
