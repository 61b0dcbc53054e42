package main_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// The commands of the runbook that are for every store run on MySQL and SQLite as well. Package
// docs tries them on Redis, where each answer is compared.
func TestRunbook_commandsRunOnMySQLAndSQLite(t *testing.T) {
	t.Parallel()
	_, path, _ := strings.Cut(mysqltest.Start(t).Database(t), "(")
	socket, database, _ := strings.Cut(path, ")/")
	for name, store := range map[string]string{
		"mysql": "mysql://root@/" + database + "?socket=" + socket, "sqlite": "sqlite:" + filepath.Join(t.TempDir(), "leases.db"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, err := connect.Open(connect.Config{URLs: []string{store}, Create: true})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, servers.Close()) })
			require.NoError(t, servers.Table.Migrate(t.Context()))
			g, err := guard.New(servers.Locker, guard.WithoutNamespace(), guard.WithLabel("web-1 pid 4242"), guard.WithTTL(12*time.Second))
			require.NoError(t, err)
			lease, err := g.Acquire(t.Context(), "report:2026-11-21")
			require.NoError(t, err)
			nothing := func(context.Context) error { return nil }
			require.NoError(t, g.Do(t.Context(), "report:2026-11-20", nothing, guard.WithOnce(time.Hour)))

			page, err := os.ReadFile("../../deploy/runbook.md")
			require.NoError(t, err)
			script := "set -eu\n"
			for _, block := range shellBlock.FindAllSubmatch(page, -1) {
				for line := range strings.Lines(string(block[1])) {
					if !strings.Contains(line, "--backend reentrant") { // that is on Redis alone
						script += line
					}
				}
			}
			script = strings.Replace(script, "export ONERUN_REDIS=redis://127.0.0.1:6379", "export ONERUN_STORE='"+store+"'", 1)
			cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			for _, want := range []string{
				`report:2026-11-21 is held\n  by     web-1 pid 4242\n  since  20`, `\nno problems\n`,
				`\nbroken: report:2026-11-21 was held by web-1 pid 4242`, `\nreport:2026-11-20  done `,
				`\nforgotten: report:2026-11-20 can run again\n`, `ops +forget +report:2026-11-20`, `ops +break +report:2026-11-21`,
			} {
				require.Regexp(t, want, string(out))
			}
			<-lease.Context().Done()
			require.ErrorIs(t, context.Cause(lease.Context()), guard.ErrLost)
			require.NoError(t, g.Do(t.Context(), "report:2026-11-20", nothing))
			require.ErrorIs(t, lease.Release(t.Context()), guard.ErrLost)
			require.NoError(t, g.Close(t.Context()))
		})
	}
}
