package postgrestest_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStart_acceptsConnectionsUntilTheTestEnds(t *testing.T) {
	var dir string
	t.Run("inner", func(t *testing.T) {
		_, dir, _ = strings.Cut(postgrestest.Start(t).DSN(), "host=")
		conn, err := net.Dial("unix", dir+"/.s.PGSQL.5432")
		require.NoError(t, err)
		require.NoError(t, conn.Close())
	})
	require.NotEmpty(t, dir)
	_, err := os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// Servers exclude each other by their folder alone, so that tests can run at the same time.
func TestStart_severalServers(t *testing.T) {
	t.Parallel()
	first, second := postgrestest.Start(t), postgrestest.Start(t)
	require.NotEqual(t, first.DSN(), second.DSN())
}

// An outcome is a test that says how it ended.
type outcome struct {
	testing.TB
	said string
}

func (o *outcome) Helper()                           {}
func (o *outcome) Skipf(format string, args ...any)  { o.end("skipped", format, args) }
func (o *outcome) Fatalf(format string, args ...any) { o.end("failed", format, args) }

func (o *outcome) end(how, format string, args []any) {
	o.said = how + ": " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestStart_failsIfPostgreSQLIsRequiredAndMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for variable, want := range map[string]string{
		"1": "failed: leftout: ONERUN_REQUIRE_POSTGRES is set and there is no initdb: apt-get install postgresql, or run make test",
		"":  "skipped: PostgreSQL is not installed",
	} {
		t.Setenv("ONERUN_REQUIRE_POSTGRES", variable)
		o := &outcome{}
		var test sync.WaitGroup
		test.Go(func() { postgrestest.Programs(o, filepath.Join(t.TempDir(), "*")) })
		test.Wait()
		how, why, _ := strings.Cut(want, ": ")
		require.True(t, strings.HasPrefix(o.said, how), o.said)
		require.Contains(t, o.said, why)
	}
}
