package river_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

// memberEnv makes the test binary a client of River: its value is the DSN.
const memberEnv = "ONERUN_RIVER_MEMBER"

const (
	members, kills = 3, 4
	jobs, keys     = 42, 6
	work           = 60 * time.Millisecond
)

// serve works jobs until the process is killed. It writes down when each run begins and ends.
func serve(dsn string) error {
	db, err := openDB(dsn)
	if err != nil {
		return err
	}
	g, err := guard.New(postgres.New(db), guard.WithNamespace("test"), guard.WithTTL(2*time.Second))
	if err != nil {
		return err
	}
	m, err := guardriver.New(g, byCustomer, guardriver.WithDelay(50*time.Millisecond), guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
	if err != nil {
		return err
	}
	c := config(func(ctx context.Context, job *river.Job[Charge]) error {
		var run int
		// If its context ends meanwhile, it has begun nevertheless.
		if err := db.QueryRowContext(context.WithoutCancel(ctx), `INSERT INTO runs (pid, job, customer) VALUES ($1, $2, $3) RETURNING id`,
			os.Getpid(), job.ID, job.Args.Customer).Scan(&run); err != nil {
			return err
		}
		select {
		case <-time.After(work):
		case <-ctx.Done(): // on a machine that stalls
		}
		lost := ctx.Err()
		_, err := db.ExecContext(context.WithoutCancel(ctx), `UPDATE runs SET ended = clock_timestamp(), lost = $2 WHERE id = $1`, run, lost != nil)
		return cmp.Or(lost, err)
	}, m)
	// a job whose middleware has returned nil has its done marker
	marks := river.WorkerMiddlewareFunc(func(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
		err := work(ctx)
		if err == nil {
			_, err = db.ExecContext(context.WithoutCancel(ctx), `UPDATE runs SET marked = true WHERE job = $1 AND pid = $2 AND NOT lost`, job.ID, os.Getpid())
		}
		return err
	})
	c.Middleware = append([]rivertype.Middleware{marks}, c.Middleware...)
	c.JobTimeout, c.RescueStuckJobsAfter = 1500*time.Millisecond, 1500*time.Millisecond
	client, err := river.NewClient(riverdatabasesql.New(db), c)
	if err != nil {
		return err
	}
	if err := client.Start(context.Background()); err != nil {
		return err
	}
	fmt.Println("works")
	select {}
}

// A run is what a process has written down. Killed is when the test has killed the process, just
// before it did so.
type run struct {
	pid, job      int64
	customer      string
	begun         time.Time
	ended, killed sql.NullTime
	lost, marked  bool
}

// over returns when the run was over at the latest, as far as is known.
func (r run) over() (at time.Time) {
	switch {
	case r.ended.Valid:
		return r.ended.Time
	case r.killed.Valid:
		return r.killed.Time
	}
	return time.Now().Add(time.Hour)
}

// Processes are killed while they work, and others take their place. River takes the jobs of the
// dead for stuck, and gives them to others.
func TestKill_losesNoJob(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	exec(t, s.db, `CREATE TABLE runs (id serial, pid bigint, job bigint, customer text, begun timestamptz DEFAULT clock_timestamp(), ended timestamptz, lost bool DEFAULT false, marked bool DEFAULT false)`)
	exec(t, s.db, `CREATE TABLE killed (pid bigint, at timestamptz DEFAULT clock_timestamp())`)
	inserter, err := river.NewClient(riverdatabasesql.New(s.db), &river.Config{Logger: quiet})
	require.NoError(t, err)
	for i := range jobs {
		_, err := inserter.Insert(t.Context(), Charge{Customer: fmt.Sprint(i % keys), Order: i}, nil)
		require.NoError(t, err)
	}
	fleet := make([]*processtest.Child, members)
	for i := range fleet {
		fleet[i] = processtest.Self(t, memberEnv+"="+s.dsn)
	}
	for range kills {
		victim := &fleet[rand.IntN(members)]
		(*victim).Says("works")
		require.Eventually(t, func() bool {
			var working bool
			require.NoError(t, s.db.QueryRow(`SELECT EXISTS (SELECT FROM runs WHERE pid = $1 AND ended IS NULL)`, (*victim).PID()).Scan(&working))
			return working
		}, 30*time.Second, 5*time.Millisecond, "it works")
		time.Sleep(time.Duration(rand.Int64N(int64(work * 5 / 4))))
		exec(t, s.db, `INSERT INTO killed VALUES ($1)`, (*victim).PID())
		(*victim).Kill()
		exec(t, s.db, `DELETE FROM river_leader`) // the new one looks for stuck jobs at once
		*victim = processtest.Self(t, memberEnv+"="+s.dsn)
	}
	s.awaitJobs(t, fleet)
	judge(t, s.runs(t))
}

// awaitJobs waits until all jobs are completed. Stuck jobs need a client that begins to lead.
func (s *stand) awaitJobs(t *testing.T, fleet []*processtest.Child) {
	t.Helper()
	for over := time.Now().Add(2 * time.Minute); ; {
		var open int
		require.NoError(t, s.db.QueryRow(`SELECT count(*) FROM river_job WHERE state <> 'completed'`).Scan(&open))
		if open == 0 {
			return
		}
		require.True(t, time.Now().Before(over), "%d jobs are not completed", open)
		time.Sleep(20 * time.Millisecond)
		var stuck int
		require.NoError(t, s.db.QueryRow(`SELECT count(*) FROM river_job WHERE state = 'running' AND attempted_at < now() - interval '1600 milliseconds'
			AND NOT EXISTS (SELECT FROM runs WHERE job = river_job.id AND ended IS NULL AND pid NOT IN (SELECT pid FROM killed))`).Scan(&stuck))
		if stuck > 0 {
			exec(t, s.db, `INSERT INTO killed VALUES ($1)`, fleet[0].PID())
			fleet[0].Kill()
			exec(t, s.db, `DELETE FROM river_leader`)
			fleet[0] = processtest.Self(t, memberEnv+"="+s.dsn)
			fleet[0].Says("works")
			time.Sleep(500 * time.Millisecond)
		}
	}
}

func (s *stand) runs(t *testing.T) (all []run) {
	t.Helper()
	rows, err := s.db.Query(`SELECT pid, job, customer, begun, ended, at, lost, marked FROM runs LEFT JOIN killed USING (pid) ORDER BY begun`)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var r run
		require.NoError(t, rows.Scan(&r.pid, &r.job, &r.customer, &r.begun, &r.ended, &r.killed, &r.lost, &r.marked))
		all = append(all, r)
	}
	require.NoError(t, rows.Err())
	return all
}

// judge asserts that each job has run, and again only if its process died before the marker; and
// that no two runs of a customer overlap. A lease that was lost, as the machine stood still, cannot
// prevent that.
func judge(t *testing.T, all []run) {
	t.Helper()
	before, last := map[string]run{}, map[int64]run{}
	again, cut, lost := 0, 0, 0
	for _, r := range all {
		if b, ok := before[r.customer]; ok {
			require.False(t, !b.lost && r.begun.Before(b.over()), "two runs of a customer at a time: %+v and %+v", b, r)
		}
		if b, ok := last[r.job]; ok {
			again++
			require.True(t, b.lost || b.killed.Valid && !b.marked, "a job that has run runs again: %+v, %+v", b, r)
		}
		before[r.customer], last[r.job] = r, r
	}
	for _, r := range all {
		if !r.ended.Valid {
			cut++
		}
		if r.lost {
			lost++
		}
	}
	require.Len(t, last, jobs, "jobs that ran")
	for _, r := range last {
		require.True(t, r.ended.Valid, "a job without a whole run: %+v", r)
	}
	require.Positive(t, cut, "a process was killed while it worked")
	t.Logf("%d jobs, %d runs, %d of them cut off by a kill, %d lost, %d again", jobs, len(all), cut, lost, again)
}
