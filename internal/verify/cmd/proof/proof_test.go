package main

import (
	"bytes"
	"context"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Parts run in the root of the clone.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func TestProof_explainsEachPart(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run([]string{"-h"}, &out), flag.ErrHelp)
	names := map[string]bool{}
	for _, p := range parts() {
		require.False(t, names[p.name], "two parts are called %s", p.name)
		names[p.name] = true
		require.Contains(t, out.String(), "  "+p.name+" ")
		require.NotEmpty(t, p.does)
		var help bytes.Buffer
		require.ErrorIs(t, run([]string{p.name, "-h"}, &help), flag.ErrHelp)
		require.Contains(t, help.String(), "Usage of "+p.name)
	}
}

func TestProof_refusesWhatItDoesNotKnow(t *testing.T) {
	for _, args := range [][]string{{"nothing"}, {"soak", "-nothing"}, {"soak", "10m"}} {
		err := run(args, new(bytes.Buffer))
		require.ErrorContains(t, err, strings.TrimLeft(args[len(args)-1], "-"))
	}
}

func TestProof_runsWhatTheTestsAndModulesAre(t *testing.T) {
	packages, err := withLongTests(false)
	require.NoError(t, err)
	require.Contains(t, packages, "./guard")
	require.Contains(t, packages, "./middleware/cron")
	require.Equal(t, longest, packages[:len(longest)], "each has long tests")
	require.NotContains(t, strings.Join(packages, " "), "examples")
	require.NotContains(t, strings.Join(packages, " "), "demo", "these run as a whole")
	weekly, err := withLongTests(true)
	require.NoError(t, err)
	require.Subset(t, weekly, append(packages, "./internal/verify/demo/coupon"))
	all, err := modules()
	require.NoError(t, err)
	require.Contains(t, all, ".")
	for _, module := range all {
		require.FileExists(t, module+"/go.mod")
	}
}

// Only the weekly run finds a package whose tests are weekly, also if make check runs the package
// as a whole.
func TestProof_findsWeeklyTests(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, test := range map[string]string{"a": "TestLong_a", "b": "TestWeekly_b", "bench": "TestWeekly_c", "cmd": "TestD"} {
		require.NoError(t, os.Mkdir(name, 0o755))
		require.NoError(t, os.WriteFile(name+"/x_test.go", []byte("package x\n\nfunc "+test+"() {}\n"), 0o600))
	}
	packages, err := withLongTests(false)
	require.NoError(t, err)
	require.Equal(t, []string{"./a"}, packages)
	packages, err = withLongTests(true)
	require.NoError(t, err)
	require.Equal(t, []string{"./a", "./b", "./bench"}, packages)
}

// A failed command stops what has not begun, and fails the whole. The output of each function is in
// one piece.
func TestProof_twoAtATimeReportsAFailure(t *testing.T) {
	var out bytes.Buffer
	c := console{out: &out}
	slow := func(ctx context.Context, c console) error { return c.sh(ctx, "echo one; sleep 0.2; echo two") }
	failing := func(ctx context.Context, c console) error { return c.sh(ctx, "echo broken; exit 3") }
	started := false
	last := func(context.Context, console) error { started = true; return nil }
	require.NoError(t, twoAtATime(t.Context(), c, slow, slow, slow))
	require.Equal(t, strings.Repeat("one\ntwo\n", 3), out.String())
	require.ErrorContains(t, twoAtATime(t.Context(), c, failing, failing, last), "exit status 3")
	require.False(t, started)
	require.Contains(t, out.String(), "broken")
}

// The types of whatever a release has are checked by make check, and so by CI.
func TestRelease_platformsAreCheckedByCI(t *testing.T) {
	release, err := os.ReadFile(".goreleaser.yaml")
	require.NoError(t, err)
	list := func(name string) []string {
		found := regexp.MustCompile(`(?m)^ +` + name + `: \[(.*)\]$`).FindSubmatch(release)
		require.NotNil(t, found, name)
		return strings.Split(string(found[1]), ", ")
	}
	var released []string
	for _, system := range list("goos") {
		for _, processor := range list("goarch") {
			released = append(released, system+"/"+processor)
		}
	}
	require.Subset(t, released, list("platforms"), "those of the image")
	require.Equal(t, platforms, released)
}
