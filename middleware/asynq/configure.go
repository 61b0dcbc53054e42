package guardasynq

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// What Configure sets where the Config says nothing.
const (
	taskCheckInterval        = 20 * time.Millisecond
	delayedTaskCheckInterval = time.Second
)

// Configure has a server treat a task that did not run as one that did not fail: it is not
// counted, and comes back when PostponedError says. It goes around what the Config has already, so
// call it last: your IsFailure and RetryDelayFunc decide about all other errors, your ErrorHandler
// is told of everything but keys that are busy and what a handler has postponed (Postpone), and
// your BaseContext is what the tasks' contexts come from. It panics if config is nil.
//
// Where the Config has none, it sets a TaskCheckInterval of 20 ms and a DelayedTaskCheckInterval
// of 1 s. With asynq's own defaults, 1 s and 5 s, a task that is brought back because its key is
// free would wait that long for a worker that has nothing to do: asynq polls, and nothing wakes
// it. A server without tasks then asks its Redis 50 times a second for each queue.
//
// A server without it loses nothing: a task whose key is busy is replaced by a copy. But its
// ErrorHandler is told each time, and WithLogger once.
func Configure(config *asynq.Config) {
	if config == nil {
		panic("guardasynq: Configure: the config must not be nil")
	}
	if config.TaskCheckInterval <= 0 {
		config.TaskCheckInterval = taskCheckInterval
	}
	if config.DelayedTaskCheckInterval == 0 {
		config.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	workers := config.Concurrency
	if workers < 1 {
		workers = runtime.NumCPU() // as asynq has it
	}
	self := &server{workers: workers}
	base := config.BaseContext
	config.BaseContext = func() context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base()
		}
		return context.WithValue(ctx, workerKey{}, self.begin())
	}
	isFailure := config.IsFailure
	config.IsFailure = func(err error) bool {
		var p *PostponedError
		if errors.As(err, &p) {
			return false
		}
		return isFailure == nil || isFailure(err)
	}
	delay := config.RetryDelayFunc
	if delay == nil {
		delay = asynq.DefaultRetryDelayFunc
	}
	config.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		var p *PostponedError
		if errors.As(err, &p) {
			return p.After
		}
		return delay(n, err, task)
	}
	if handler := config.ErrorHandler; handler != nil {
		config.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
			var p *PostponedError
			if errors.As(err, &p) && (p.asked || errors.Is(p.Err, guard.ErrBusy)) {
				return
			}
			handler.HandleError(ctx, task, err)
		})
	}
}
