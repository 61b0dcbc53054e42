package leftout_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// run runs a test of this binary again, with further arguments.
func run(t *testing.T, test string, args ...string) string {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], append(args, "-test.v", "-test.run=^"+test+"$")...)
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// TestLong_marked is what the tests below run. It stands for a long test.
func TestLong_marked(t *testing.T) { leftout.IfShort(t) }

func TestIfShort_skipsALongTest(t *testing.T) {
	out := run(t, "TestLong_marked", "-test.short")
	require.Contains(t, out, "--- SKIP: TestLong_marked")
	require.Contains(t, out, "it is long, and go test runs with -short")
}

func TestIfShort_letsALongTestRun(t *testing.T) {
	require.Contains(t, run(t, "TestLong_marked"), "--- PASS: TestLong_marked")
}

// TestMarked_needsServers is what the test below runs.
func TestMarked_needsServers(t *testing.T) { leftout.ServersIfShort(t) }

func TestServersIfShort_leavesOutUnlessServersAreRequired(t *testing.T) {
	for required, says := range map[string]string{"": "--- SKIP", "1": "--- PASS"} {
		t.Setenv("ONERUN_REQUIRE_REDIS", required)
		require.Contains(t, run(t, "TestMarked_needsServers", "-test.short"), says)
		require.Contains(t, run(t, "TestMarked_needsServers"), "--- PASS")
	}
}
