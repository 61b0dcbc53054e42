package guardriver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardriver "github.com/seed-1795987d/onerun/middleware/river"
)

// A stand is a Guard in memory that a test can cut off, and what its hooks receive.
type stand struct {
	*guard.Guard

	mu       sync.Mutex
	cut      error // what the store returns
	outcomes []guard.Outcome
}

func newStand(t *testing.T) *stand {
	t.Helper()
	s := &stand{}
	var err error
	s.Guard, err = guard.New(linetest.Line{Locker: memory.New(), Ask: s.ask},
		guard.WithNamespace("test"), guard.WithHook(guard.Hook{Outcome: s.note}))
	require.NoError(t, err)
	t.Cleanup(func() {
		s.cutOff(nil)
		require.NoError(t, s.Close(context.Background()))
	})
	return s
}

func (s *stand) ask(context.Context, linetest.Call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cut
}

// cutOff makes the store return an error, or answer again.
func (s *stand) cutOff(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = err
}

func (s *stand) note(_ context.Context, o guard.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outcomes = append(s.outcomes, o)
}

// results returns the results that hooks have received since the last call.
func (s *stand) results() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.outcomes {
		all = append(all, o.Result)
	}
	s.outcomes = nil
	return all
}

func (s *stand) middleware(t *testing.T, key guardriver.KeyFunc, opts ...guardriver.Option) rivertype.WorkerMiddleware {
	t.Helper()
	m, err := guardriver.New(s.Guard, key, opts...)
	require.NoError(t, err)
	return m
}

// charge returns a job for a customer.
func charge(id int64, customer string) *rivertype.JobRow {
	return &rivertype.JobRow{ID: id, Kind: "charge", EncodedArgs: []byte(`{"customer":"` + customer + `"}`), Metadata: []byte(`{}`)}
}

func returns(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}

// mustNotRun is a worker that fails the test.
func mustNotRun(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the worker ran")
		return nil
	}
}

// snoozed returns for how long River snoozes a job that a middleware has returned an error for.
func snoozed(t *testing.T, err error) time.Duration {
	t.Helper()
	var snooze *rivertype.JobSnoozeError
	require.ErrorAs(t, err, &snooze)
	return snooze.Duration
}
