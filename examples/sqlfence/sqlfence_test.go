package main

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// programEnv makes the test binary the program.
const programEnv = "SQLFENCE_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	redistest.VerifyNoLeaks(m)
}

// databases have a new database for each test.
var databases = map[string]func(t *testing.T) (dsn string){
	"SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "stock.db") },
	"PostgreSQL": func(t *testing.T) string { return postgrestest.Start(t).DSN() },
	"MySQL":      func(t *testing.T) string { return mysqltest.Start(t).Database(t) },
}

func onEachDatabase(t *testing.T, test func(t *testing.T, dsn string)) {
	for name, start := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t))
		})
	}
}

func open(t *testing.T, dsn string) stock {
	t.Helper()
	s, err := openStock(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// remaining reads the stock without the program's own SQL.
func remaining(t *testing.T, s stock) (n int) {
	t.Helper()
	db := s.(interface {
		QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	})
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT remaining FROM stock WHERE item = 'spring'`).Scan(&n))
	return n
}

func TestStock_refusesAStaleFence(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, dsn string) {
		s := open(t, dsn)
		n, err := s.read(t.Context(), "spring", 7)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		for range 2 { // a statement that changes nothing matches its row all the same
			require.NoError(t, s.write(t.Context(), "spring", 2, 7))
			n, err = s.read(t.Context(), "spring", 7)
			require.NoError(t, err, "a holder reads and writes as often as it likes")
			require.Equal(t, 2, n)
		}

		n, err = s.read(t.Context(), "spring", 8)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.ErrorIs(t, s.write(t.Context(), "spring", 1, 7), errStale, "the read has registered the fence")
		_, err = s.read(t.Context(), "spring", 7)
		require.ErrorIs(t, err, errStale)
		require.Equal(t, 2, remaining(t, s))
		require.NoError(t, s.write(t.Context(), "spring", 1, 8))
		require.Equal(t, 1, remaining(t, s))
	})
}

// The first process is paused between its read and its write, for longer than its lease.
func TestSqlfence_refusesAProcessThatWasPausedPastItsLease(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, dsn string) {
		addr := redistest.Start(t).Addr()
		start := func() *processtest.Child {
			cmd := exec.Command(os.Args[0], "-db", dsn, "-redis", addr, "-ttl", "1s")
			cmd.Env = append(os.Environ(), programEnv+"=1")
			return processtest.StartChild(t, cmd)
		}
		paused := start()
		require.Equal(t, "3 are left; press Enter to take one", paused.Next())
		require.NoError(t, paused.Freeze())

		next := start() // gets the key when the lease has expired
		require.Equal(t, "3 are left; press Enter to take one", next.Next())
		next.Tell("")
		require.Equal(t, "taken, 2 are left", next.Next())
		next.Ends()

		paused.Tell("")
		require.NoError(t, paused.Thaw())
		require.Equal(t, "refused: a newer holder has come", paused.Next())
		require.EqualError(t, paused.Wait(), "exit status 1")
		require.Equal(t, 2, remaining(t, open(t, dsn)))
	})
}
