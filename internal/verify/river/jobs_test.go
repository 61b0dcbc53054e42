package river_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

var byCustomer = guardriver.FromJSON("customer")

// Two clients work the jobs of three customers. Each job may be attempted once. A job may be
// postponed many times.
func TestJobs_runOneAtATimeForEachKey(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var mu sync.Mutex
	running, ran, beside := map[string]int{}, map[int64]int{}, 0
	work := func(_ context.Context, job *river.Job[Charge]) error {
		mu.Lock()
		ran[job.ID]++
		running[job.Args.Customer]++
		if running[job.Args.Customer] > 1 {
			beside++
		}
		mu.Unlock()
		time.Sleep(20 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		running[job.Args.Customer]--
		return nil
	}
	inserter, err := river.NewClient(riverdatabasesql.New(s.db), &river.Config{Logger: quiet})
	require.NoError(t, err)
	var ids []int64
	for i := range 30 {
		ids = append(ids, insert(t, inserter, Charge{Customer: fmt.Sprint(i % 3), Order: i}, 1))
	}
	client := s.start(t, work, nil, byCustomer)
	s.start(t, work, nil, byCustomer)
	snoozed := 0
	for _, id := range ids {
		job := await(t, client, id, rivertype.JobStateCompleted, rivertype.JobStateDiscarded)
		require.Equal(t, rivertype.JobStateCompleted, job.State)
		require.Equal(t, 1, job.Attempt)
		require.Empty(t, job.Errors)
		if string(job.Metadata) != "{}" {
			snoozed++
		}
	}
	require.Positive(t, snoozed)
	require.Len(t, ran, len(ids))
	for id, n := range ran {
		require.Equal(t, 1, n, "runs of job %d", id)
	}
	require.Zero(t, beside, "jobs that ran beside another one of their key")
}

// A client is stopped while one job runs and another one waits in its worker. Neither loses its
// only attempt, and both run on the next client.
func TestStop_costsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var begun atomic.Int64
	stopping := s.start(t, func(ctx context.Context, _ *river.Job[Charge]) error {
		begun.Add(1)
		<-ctx.Done()
		return ctx.Err()
	}, nil, byCustomer, guardriver.WithWait(guard.Forever))
	ids := []int64{insert(t, stopping, Charge{Customer: "42"}, 1), insert(t, stopping, Charge{Customer: "42"}, 1)}
	for _, id := range ids {
		await(t, stopping, id, rivertype.JobStateRunning)
	}
	require.Eventually(t, func() bool { return begun.Load() == 1 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, stopping.StopAndCancel(t.Context()))
	require.EqualValues(t, 1, begun.Load())
	for _, id := range ids {
		job := await(t, stopping, id, rivertype.JobStateAvailable)
		require.Zero(t, job.Attempt)
	}
	next := s.start(t, func(context.Context, *river.Job[Charge]) error { return nil }, nil, byCustomer)
	for _, id := range ids {
		await(t, next, id, rivertype.JobStateCompleted)
	}
}

// River takes a job for stuck that still runs, and gives it to a second worker. That does not run
// beside the first one, and with WithOnce not after it either.
func TestRescue_theSecondRunIsNotBesideTheFirst(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var runs atomic.Int64
	begun, end := make(chan bool), make(chan bool)
	// River looks for stuck jobs twice a minute, and when a client becomes the leader: here, when
	// another leader's time is over.
	exec(t, s.db, `INSERT INTO river_leader (elected_at, expires_at, leader_id) VALUES (now(), now() + interval '1 second', 'gone')`)
	client := s.start(t, func(context.Context, *river.Job[Charge]) error {
		if runs.Add(1) == 1 {
			close(begun)
			<-end // deaf to its context
		}
		return nil
	}, func(c *river.Config) {
		c.JobTimeout, c.RescueStuckJobsAfter = 100*time.Millisecond, 200*time.Millisecond
	}, byCustomer, guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
	id := insert(t, client, Charge{Customer: "42"}, 5)
	<-begun
	require.Eventually(t, func() bool {
		job, err := client.JobGet(t.Context(), id)
		require.NoError(t, err)
		return len(job.Errors) == 1 && strings.Contains(string(job.Metadata), "snoozes")
	}, 20*time.Second, 10*time.Millisecond, "rescued, and given to a worker")
	time.Sleep(200 * time.Millisecond) // the second attempt is postponed several times
	require.EqualValues(t, 1, runs.Load())
	close(end)
	job := await(t, client, id, rivertype.JobStateCompleted)
	require.Contains(t, job.Errors[0].Error, "Stuck job rescued")
	require.Len(t, job.Errors, 1, "postponing costs nothing")
	require.EqualValues(t, 1, runs.Load(), "WithOnce")
}

// The fence is checked in the transaction that completes the job. If the lease is lost, neither the
// work nor the completion is committed, and the job is retried.
func TestFence_aStaleJobCannotComplete(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	exec(t, s.db, `CREATE TABLE charged (customer text, attempt int)`)
	stale := make(chan error, 1)
	client := s.start(t, func(ctx context.Context, job *river.Job[Charge]) error {
		if job.Attempt == 1 {
			exec(t, s.db, `DELETE FROM onerun_leases`)
		}
		lease, _ := guard.FromContext(ctx)
		err := s.locker.InTx(context.WithoutCancel(ctx), lease, func(tx *sql.Tx) error {
			if _, err := tx.Exec(`INSERT INTO charged VALUES ($1, $2)`, job.Args.Customer, job.Attempt); err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverdatabasesql.Driver](context.WithoutCancel(ctx), tx, job)
			return err
		})
		if job.Attempt == 1 {
			stale <- err
			return nil // and River learns of the loss nevertheless
		}
		return errors.Join(err, errors.New("the job is complete, so River ignores this"))
	}, nil, byCustomer)
	id := insert(t, client, Charge{Customer: "42"}, 2)
	job := await(t, client, id, rivertype.JobStateCompleted, rivertype.JobStateDiscarded)
	require.Equal(t, rivertype.JobStateCompleted, job.State)
	require.ErrorIs(t, <-stale, postgres.ErrStale)
	require.Len(t, job.Errors, 1)
	require.Contains(t, job.Errors[0].Error, "was lost")
	var attempts string
	require.NoError(t, s.db.QueryRow(`SELECT string_agg(attempt::text, ',') FROM charged`).Scan(&attempts))
	require.Equal(t, "2", attempts)
}

func exec(t *testing.T, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.Exec(query, args...)
	require.NoError(t, err)
}

// A panic and a job without a key are errors of River's, and leave the next job alone.
func TestErrors_areRivers(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	client := s.start(t, func(_ context.Context, job *river.Job[Charge]) error {
		if job.Attempt == 1 {
			panic("no such account")
		}
		return nil
	}, nil, guardriver.Join(guardriver.FromKind(), byCustomer))
	panics, nobody := insert(t, client, Charge{Customer: "42"}, 2), insert(t, client, Charge{}, 2)
	require.Equal(t, "no such account", await(t, client, panics, rivertype.JobStateCompleted).Errors[0].Error)
	job := await(t, client, nobody, rivertype.JobStateDiscarded)
	require.Len(t, job.Errors, 2)
	require.Contains(t, job.Errors[0].Error, "JSON field customer of the args is empty")
}
