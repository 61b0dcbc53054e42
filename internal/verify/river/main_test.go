// Package river_test runs River itself, with guardriver, on real PostgreSQL servers. It is in this
// module because of River and its drivers, which users of guardriver choose themselves.
package river_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

func TestMain(m *testing.M) {
	if dsn := os.Getenv(memberEnv); dsn != "" {
		if err := serve(dsn); err != nil {
			fmt.Println("fails:", err)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// Charge is what jobs of the tests have.
type Charge struct {
	Customer string `json:"customer"`
	Order    int    `json:"order"`
}

// Kind implements river.JobArgs.
func (Charge) Kind() string { return "charge" }

// A worker calls f for each job. Its middleware is that of the test.
type worker struct {
	river.WorkerDefaults[Charge]
	f func(ctx context.Context, job *river.Job[Charge]) error
}

func (w *worker) Work(ctx context.Context, job *river.Job[Charge]) error { return w.f(ctx, job) }

// NextRetry is soon, for tests.
func (w *worker) NextRetry(*river.Job[Charge]) time.Time {
	return time.Now().Add(100 * time.Millisecond)
}

// A stand is a database with River's tables and those of the leases.
type stand struct {
	dsn    string
	db     *sql.DB
	locker *postgres.Locker
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{dsn: postgrestest.Start(t).DSN()}
	s.db, s.locker = open(t, s.dsn)
	require.NoError(t, s.locker.Migrate(t.Context()))
	migrator, err := rivermigrate.New(riverdatabasesql.New(s.db), &rivermigrate.Config{Logger: quiet})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	return s
}

func open(t testing.TB, dsn string) (*sql.DB, *postgres.Locker) {
	db, err := openDB(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db, postgres.New(db)
}

func openDB(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return stdlib.OpenDB(*config), nil
}

var quiet = slog.New(slog.DiscardHandler)

// config returns the config of a client with five workers, which asks often.
func config(f func(context.Context, *river.Job[Charge]) error, m rivertype.WorkerMiddleware) *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{f: f})
	return &river.Config{
		FetchCooldown: 10 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Logger: quiet, Middleware: []rivertype.Middleware{m},
		Queues:   map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 5}},
		TestOnly: true, // begins without a random delay
		Workers:  workers,
	}
}

// start starts a client with a Guard of its own, as in a process. The test stops it.
func (s *stand) start(t *testing.T, f func(context.Context, *river.Job[Charge]) error, change func(*river.Config), key guardriver.KeyFunc, opts ...guardriver.Option) *river.Client[*sql.Tx] {
	t.Helper()
	g, err := guard.New(s.locker, guard.WithNamespace("test"))
	require.NoError(t, err)
	m, err := guardriver.New(g, key, append([]guardriver.Option{guardriver.WithDelay(30 * time.Millisecond)}, opts...)...)
	require.NoError(t, err)
	c := config(f, m)
	if change != nil {
		change(c)
	}
	client, err := river.NewClient(riverdatabasesql.New(s.db), c)
	require.NoError(t, err)
	require.NoError(t, client.Start(context.WithoutCancel(t.Context())))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, client.StopAndCancel(ctx))
		require.NoError(t, g.Close(ctx))
	})
	return client
}

// insert enqueues a job that may be attempted so many times.
func insert(t *testing.T, client *river.Client[*sql.Tx], args Charge, attempts int) int64 {
	t.Helper()
	result, err := client.Insert(t.Context(), args, &river.InsertOpts{MaxAttempts: attempts})
	require.NoError(t, err)
	return result.Job.ID
}

// await waits until a job has a state, and returns it.
func await(t *testing.T, client *river.Client[*sql.Tx], id int64, states ...rivertype.JobState) (job *rivertype.JobRow) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		job, err = client.JobGet(t.Context(), id)
		require.NoError(t, err)
		for _, state := range states {
			if job.State == state {
				return true
			}
		}
		return false
	}, 20*time.Second, 10*time.Millisecond, "%v", states)
	return job
}
