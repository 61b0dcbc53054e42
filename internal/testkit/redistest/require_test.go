package redistest_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// runWithoutRedis runs one test of this binary where no redis-server is to be found.
func runWithoutRedis(t *testing.T, env ...string) (string, error) {
	t.Helper()
	return runOf(t, "TestServer_takesArguments", append([]string{"PATH=" + t.TempDir(), "ONERUN_REQUIRE_REDIS="}, env...)...)
}

// runOf runs one test of this binary in another environment.
func runOf(t *testing.T, test string, env ...string) (string, error) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.v", "-test.run=^"+test+"$")
	child.Env = append(os.Environ(), env...)
	out, err := child.CombinedOutput()
	return string(out), err
}

func TestRequire_skipsTheTestWithoutRedis(t *testing.T) {
	out, err := runWithoutRedis(t)
	require.NoError(t, err, out)
	require.Contains(t, out, "--- SKIP: TestServer_takesArguments")
	require.Contains(t, out, "redis-server is not installed (apt-get install redis-server, or run make test)")
}

func TestRequire_failsWhereRedisIsDemanded(t *testing.T) {
	out, err := runWithoutRedis(t, "ONERUN_REQUIRE_REDIS=1")
	require.Error(t, err)
	require.Contains(t, out, "--- FAIL: TestServer_takesArguments")
	require.Contains(t, out, "apt-get install redis-server")
}

func TestRequire_passesWithRedis(t *testing.T) {
	redistest.Require(t)
	_, err := exec.LookPath("redis-server")
	require.NoError(t, err)
}
