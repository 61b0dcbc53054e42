package guardriver_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

var (
	byCustomer = guardriver.FromJSON("customer")
	errWorker  = errors.New("the card was refused")
)

func TestWork_returnsWhatTheWorkerReturns(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer)
	var fences []uint64
	for _, want := range []error{nil, errWorker, rivertype.JobCancel(errWorker)} {
		err := m.Work(t.Context(), charge(1, "42"), func(ctx context.Context) error {
			require.Equal(t, "42", guardriver.Key(ctx))
			fences = append(fences, guard.Fence(ctx))
			return want
		})
		require.Equal(t, want, err)
	}
	require.IsIncreasing(t, fences)
	require.Equal(t, []string{"ran", "ran", "ran"}, s.results())
	require.Empty(t, guardriver.Key(t.Context()))
}

// With each policy, what the second job of a key does while the first one runs.
func TestBusy_policies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy guardriver.BusyPolicy
		result string
		check  func(t *testing.T, err error)
	}{
		"Requeue": {guardriver.Requeue, "postponed", func(t *testing.T, err error) {
			require.InDelta(t, time.Second+time.Second/8, snoozed(t, err), float64(time.Second/8+time.Millisecond))
			var postponed *guardriver.PostponedError
			require.ErrorAs(t, err, &postponed)
			require.ErrorIs(t, err, guard.ErrBusy)
		}},
		"Skip": {guardriver.Skip, "skipped", func(t *testing.T, err error) { require.NoError(t, err) }},
		"Fail": {guardriver.Fail, "busy", func(t *testing.T, err error) {
			require.ErrorIs(t, err, guard.ErrBusy)
			require.NotErrorIs(t, err, &rivertype.JobSnoozeError{})
			require.ErrorContains(t, err, "job 2 (charge)")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			m := s.middleware(t, byCustomer, guardriver.WithBusy(c.policy))
			require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
				c.check(t, m.Work(t.Context(), charge(2, "42"), mustNotRun(t)))
				return m.Work(t.Context(), charge(3, "43"), returns(nil)) // another key
			}))
			require.Equal(t, []string{c.result, "ran", "ran"}, s.results())
		})
	}
}

// River rescues a job that runs for too long, and begins it once more. The run that holds the key
// is then its own. River no longer takes that run's result, so Skip must not complete the job.
func TestBusy_aRescuedJobIsNotSkipped(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer, guardriver.WithBusy(guardriver.Skip))
	rescued := charge(1, "42")
	rescued.Errors = []rivertype.AttemptError{{Attempt: 1, Error: "Stuck job rescued by Rescuer"}}
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
		snoozed(t, m.Work(t.Context(), rescued, mustNotRun(t)))
		return nil
	}))
	require.Equal(t, []string{"postponed", "ran"}, s.results())
}

// A worker's own error is not hidden by that of a marker of another Guard, or of its context.
func TestWork_returnsTheErrorOfItsWorker(t *testing.T) {
	t.Parallel()
	own := errors.New("failed")
	for _, err := range []error{errors.Join(own, &guard.MarkerError{}), &rivertype.JobCancelError{}} {
		s := newStand(t)
		got := s.middleware(t, byCustomer).Work(t.Context(), charge(1, "42"), returns(err))
		require.ErrorIs(t, got, err)
	}
}

// A job that waits for long asks seldom: River counts how often it was snoozed.
func TestBusy_theDelayGrows(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer)
	fixed := s.middleware(t, byCustomer, guardriver.WithDelay(time.Minute))
	job := charge(2, "42")
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
		for snoozes, least := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 4: 16 * time.Second, 1000: 16 * time.Second} {
			job.Metadata = fmt.Appendf(nil, `{"snoozes":%d}`, snoozes)
			after := snoozed(t, m.Work(t.Context(), job, mustNotRun(t)))
			require.GreaterOrEqual(t, after, least)
			require.Less(t, after, least+least/4+2*time.Millisecond)
			require.GreaterOrEqual(t, snoozed(t, fixed.Work(t.Context(), job, mustNotRun(t))), time.Minute)
		}
		return nil
	}))
}

func TestWait_theNextJobBeginsWhenTheFirstEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		m := s.middleware(t, byCustomer, guardriver.WithWait(time.Minute))
		first := make(chan error)
		running := make(chan bool)
		go func() {
			first <- m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
				close(running)
				time.Sleep(30 * time.Second)
				return nil
			})
		}()
		<-running
		begin := time.Now()
		require.NoError(t, m.Work(t.Context(), charge(2, "42"), returns(nil)))
		require.Equal(t, 30*time.Second, time.Since(begin))
		require.NoError(t, <-first)
	})
}

// The wait ends with the job's context: River stops the client (Canceled, which costs no attempt
// then), or an outer middleware has set a deadline.
func TestWait_endsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t)
		m := s.middleware(t, byCustomer, guardriver.WithWait(guard.Forever))
		require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			err := m.Work(ctx, charge(2, "42"), mustNotRun(t))
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, &rivertype.JobSnoozeError{})
			ctx, cancel = context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			snoozed(t, m.Work(ctx, charge(2, "42"), mustNotRun(t)))
			return nil
		}))
		require.Equal(t, []string{"canceled", "postponed", "ran"}, s.results())
	})
}

func TestWork_leavesTheKeyFree(t *testing.T) {
	t.Parallel()
	for name, worker := range map[string]func(context.Context) error{
		"an error": returns(errWorker),
		"a panic":  func(context.Context) error { panic("worker") },
		"Goexit":   func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStand(t)
			m := s.middleware(t, byCustomer, guardriver.WithOnce(time.Hour, guardriver.FromJobID()))
			ended := make(chan bool)
			go func() {
				defer close(ended)
				defer func() {
					if v := recover(); v != nil {
						require.Equal(t, "worker", v)
					}
				}()
				_ = m.Work(t.Context(), charge(1, "42"), worker)
			}()
			<-ended
			require.Equal(t, name != "an error", s.outcomes[0].Aborted)
			require.NoError(t, m.Work(t.Context(), charge(1, "42"), returns(nil)), "neither busy nor done")
			require.Equal(t, []string{"ran", "ran"}, s.results())
		})
	}
}

// Up to two jobs of a key run at a time.
func TestLimit_severalAtATime(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, byCustomer, guardriver.WithLease(guard.WithLimit(2)))
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
		return m.Work(t.Context(), charge(2, "42"), func(context.Context) error {
			snoozed(t, m.Work(t.Context(), charge(3, "42"), mustNotRun(t)))
			return nil
		})
	}))
	require.Equal(t, []string{"postponed", "ran", "ran"}, s.results())
}

func TestGroup_kindsShareTheirKeys(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	refund := func(customer string) *rivertype.JobRow {
		job := charge(2, customer)
		job.Kind = "refund"
		return job
	}
	for name, opts := range map[string][]guardriver.Option{"": nil, "payments": {guardriver.WithGroup("payments")}} {
		m := s.middleware(t, byCustomer, opts...)
		require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
			err := m.Work(t.Context(), refund("42"), returns(nil))
			require.Equal(t, name != "", errors.Is(err, guard.ErrBusy), err)
			return nil
		}))
	}
}

func TestUnguarded_runsWithoutALease(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	m := s.middleware(t, guardriver.Optional(byCustomer))
	job := &rivertype.JobRow{Kind: "sweep", EncodedArgs: []byte(`{}`)}
	require.ErrorIs(t, m.Work(t.Context(), job, func(ctx context.Context) error {
		require.Zero(t, guard.Fence(ctx))
		return errWorker
	}), errWorker)
	require.Equal(t, []string{"unguarded"}, s.results())
}

// Options of a single job that cannot work fail it, and say so.
func TestJobLease_isChecked(t *testing.T) {
	t.Parallel()
	s := newStand(t)
	var opts []guard.Option
	m := s.middleware(t, byCustomer, guardriver.WithJobLease(func(context.Context, *rivertype.JobRow) []guard.Option { return opts }))
	opts = []guard.Option{guard.WithLimit(2)}
	require.NoError(t, m.Work(t.Context(), charge(1, "42"), func(context.Context) error {
		return m.Work(t.Context(), charge(2, "42"), returns(nil))
	}))
	for _, bad := range []guard.Option{guard.WithWait(time.Second), guard.WithOnce(time.Hour), guard.WithTTL(time.Millisecond)} {
		opts = []guard.Option{bad}
		err := m.Work(t.Context(), charge(1, "42"), mustNotRun(t))
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		require.ErrorContains(t, err, "guardriver: lease of job 1 (charge): ")
	}
	require.Equal(t, []string{"ran", "ran", "refused", "refused", "refused"}, s.results())
}
