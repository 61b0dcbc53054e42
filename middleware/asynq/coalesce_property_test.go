package guardasynq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// An aqTrigger is a task of TestLong_coalesceWhateverComesWhen, and its payload.
type aqTrigger struct {
	Key string `json:"key"`
	N   int    `json:"n"`
	// For is how long its run takes.
	For time.Duration `json:"for"`

	enqueued, came, settled time.Time
}

// An aqTriggerRun is a run of a trigger.
type aqTriggerRun struct {
	of           *aqTrigger
	begun, ended time.Time
}

// An aqHistory records the triggers and their runs, and is the handler.
type aqHistory struct {
	mu       sync.Mutex
	triggers map[string][]*aqTrigger
	runs     map[string][]aqTriggerRun
}

func (h *aqHistory) enqueued(key string, runFor time.Duration) *aqTrigger {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &aqTrigger{Key: key, N: len(h.triggers[key]), For: runFor, enqueued: time.Now()}
	h.triggers[key] = append(h.triggers[key], t)
	return t
}

func (h *aqHistory) read(task *asynq.Task) *aqTrigger {
	var t aqTrigger
	if err := json.Unmarshal(task.Payload(), &t); err != nil {
		panic(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.triggers[t.Key][t.N]
}

// around notes when a trigger first comes to a worker, and when the worker has handled it.
func (h *aqHistory) around(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		t := h.read(task)
		h.mu.Lock()
		if t.came.IsZero() {
			t.came = time.Now()
		}
		h.mu.Unlock()
		err := next.ProcessTask(ctx, task)
		h.mu.Lock()
		defer h.mu.Unlock()
		// an error postpones it: a busy machine may answer too late
		if err == nil && t.settled.IsZero() {
			t.settled = time.Now()
		}
		return err
	})
}

func (h *aqHistory) ProcessTask(_ context.Context, task *asynq.Task) error {
	run := aqTriggerRun{of: h.read(task), begun: time.Now()}
	time.Sleep(run.of.For) // the work
	run.ended = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[run.of.Key] = append(h.runs[run.of.Key], run)
	return nil
}

// older reports whether one trigger came before another. Triggers that were with workers at the
// same time have no order.
func (t *aqTrigger) older(other *aqTrigger) bool {
	return !t.settled.IsZero() && t.settled.Before(other.came)
}

func (h *aqHistory) check(t *testing.T, key string) {
	t.Helper()
	triggers, runs := h.triggers[key], h.runs[key]
	require.NotEmpty(t, runs)
	require.LessOrEqual(t, len(runs), len(triggers))
	for i, r := range runs[1:] {
		require.False(t, r.begun.Before(runs[i].ended), "runs %d and %d of %s overlapped", i, i+1, key)
	}
	last := runs[len(runs)-1].of
	for _, trigger := range triggers {
		require.False(t, last.older(trigger), "of %s, the last run was of trigger %d, which is older than %d", key, last.N, trigger.N)
		require.True(t, slices.ContainsFunc(runs, func(r aqTriggerRun) bool {
			return !r.begun.Before(trigger.enqueued) && !r.of.older(trigger)
		}), "trigger %d of %s was neither run nor superseded by a newer one", trigger.N, key)
	}
}

func TestLong_coalesceWhateverComesWhen(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	const rounds = 15
	for name, config := range map[string]asynq.Config{"configured": aqConfig(), "without Configure": aqPlainConfig()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			t.Log("seed", seed)
			s, h := newAqSite(t), &aqHistory{triggers: map[string][]*aqTrigger{}, runs: map[string][]aqTriggerRun{}}
			for range 2 {
				m := s.middlewareOf(t, s.newGuard(t), guardasynq.FromJSON("key"), guardasynq.WithBusy(guardasynq.Coalesce))
				s.serve(t, config, h.around(m(h)))
			}
			var all sync.WaitGroup
			for round := range rounds {
				all.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(round)))
					key := fmt.Sprint("key ", round)
					longest, pause := time.Duration(1+r.IntN(200))*time.Millisecond, time.Duration(1+r.IntN(200))*time.Millisecond
					for range 1 + r.IntN(20) {
						payload, err := json.Marshal(h.enqueued(key, time.Duration(r.Int64N(int64(longest)))))
						assert.NoError(t, err)
						_, err = s.client.Enqueue(asynq.NewTask("index", payload, asynq.MaxRetry(r.IntN(2))))
						assert.NoError(t, err)
						if r.IntN(3) > 0 {
							// triggers come at any time
							time.Sleep(time.Duration(r.Int64N(int64(pause))))
						}
					}
				})
			}
			all.Wait()
			s.awaitEmpty(t)
			for round := range rounds {
				h.check(t, fmt.Sprint("key ", round))
			}
		})
	}
}
