package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/cronlog"
)

// Names of jobs went through path.Match, whose * ends at a slash and to which a [ is an error.
func TestJobs_patterns(t *testing.T) {
	s := newSite(t)
	g, err := guard.New(single.New(s.client), guard.WithoutNamespace())
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(t.Context())) }()
	ledger, ok := g.Adapter().Ledger()
	require.True(t, ok)
	for _, name := range []string{"nightly/billing/eu", "nightly mail", "report[eu", "a*c", "abc"} {
		require.NoError(t, cronlog.Announce(t.Context(), ledger, name, "@daily"))
	}
	for _, c := range []struct{ pattern, jobs string }{
		{"nightly*", "nightly mail, nightly/billing/eu"},
		{"*eu", "nightly/billing/eu, report[eu"},
		{"n*l*eu", "nightly/billing/eu"},
		{"report[eu", "report[eu"},
		{"report[*", "report[eu"},
		{"a*c", "a*c"}, // its exact name
		{"a*", "a*c, abc"},
		{"*", "a*c, abc, nightly mail, nightly/billing/eu, report[eu"},
	} {
		code, out, errs := s.run("pause", c.pattern)
		require.Zero(t, code, "%s: %s", c.pattern, errs)
		require.Equal(t, "paused: "+c.jobs+"\n", out, c.pattern)
	}
	_, out, _ := s.run("pause", "abc", "ab*", "abc")
	require.Equal(t, "paused: abc\n", out, "once")
	for _, pattern := range []string{"nightly", "abc*abc", "*x*", "?bc", "report["} {
		code, _, errs := s.run("pause", pattern)
		require.Equal(t, 125, code, pattern)
		require.Contains(t, errs, "no process has announced a job", pattern)
	}
}
