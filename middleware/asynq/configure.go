package guardasynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// What Configure sets if the Config does not.
const (
	taskCheckInterval        = 20 * time.Millisecond
	delayedTaskCheckInterval = time.Second
)

// The intervals that asynq has if the Config sets none, together.
const asynqIntervals = time.Second + 5*time.Second

// intervalsKey is the key of a server's intervals, together, in the contexts of its tasks.
type intervalsKey struct{}

// Configure returns a Config whose server treats a task that did not run as one that did not fail:
// asynq does not count it, and brings it back when PostponedError says. It wraps what the Config
// has, so give its result to asynq:
//
//		server := asynq.NewServer(redisOpt, guardasynq.Configure(config))
//
//	  - IsFailure and RetryDelayFunc decide about all other errors.
//	  - ErrorHandler does not receive busy keys, nor tasks that a handler has postponed (Snooze).
//	  - BaseContext is the parent of the tasks' contexts.
//
// If the Config has none, it sets a TaskCheckInterval of 20 ms and a DelayedTaskCheckInterval of 1
// s. asynq polls, and nothing wakes it. With its own defaults, 1 s and 5 s, a task whose key is
// free would wait that long for an idle worker. A server without tasks then asks its Redis 50
// times a second for each queue.
//
// A server without Configure loses nothing: the middleware replaces a task whose key is busy by a
// copy. But its ErrorHandler receives each such task, and so do hooks, as guard.Outcome.Refused.
func Configure(config asynq.Config) asynq.Config {
	if config.TaskCheckInterval <= 0 {
		config.TaskCheckInterval = taskCheckInterval
	}
	if config.DelayedTaskCheckInterval <= 0 { // asynq would poll without a pause
		config.DelayedTaskCheckInterval = delayedTaskCheckInterval
	}
	intervals := config.DelayedTaskCheckInterval + config.TaskCheckInterval
	base := config.BaseContext
	config.BaseContext = func() context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base()
		}
		return context.WithValue(ctx, intervalsKey{}, intervals)
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
			if errors.As(err, &p) && (p.snoozed || errors.Is(p.Err, guard.ErrBusy)) {
				return
			}
			handler.HandleError(ctx, task, err)
		})
	}
	return config
}
