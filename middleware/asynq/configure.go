package guardasynq

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

type configuredKey struct{}

// Configure has a server treat a task that did not run as one that did not fail: it is not
// counted, and comes back when PostponedError says. It goes around what the Config has already, so
// call it last: your IsFailure and RetryDelayFunc decide about all other errors, your ErrorHandler
// is told of everything but keys that are busy, and your BaseContext is what the tasks' contexts
// come from. It panics if config is nil.
//
// A server without it loses nothing: a task whose key is busy is replaced by a copy. But its
// ErrorHandler is told each time, and WithLogger once.
func Configure(config *asynq.Config) {
	if config == nil {
		panic("guardasynq: Configure: the config must not be nil")
	}
	base := config.BaseContext
	config.BaseContext = func() context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base()
		}
		return context.WithValue(ctx, configuredKey{}, true)
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
			if errors.As(err, &p) && errors.Is(p.Err, guard.ErrBusy) {
				return
			}
			handler.HandleError(ctx, task, err)
		})
	}
}

// configured reports whether the server whose task has ctx was configured.
func configured(ctx context.Context) bool { return ctx.Value(configuredKey{}) != nil }
