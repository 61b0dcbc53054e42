package guardasynq

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
)

// What Configure sets where the Config says nothing.
const (
	taskCheckInterval        = 100 * time.Millisecond
	delayedTaskCheckInterval = time.Second
)

type serverKey struct{}

// A server is an asynq server whose Config went through Configure.
type server struct {
	workers int64
	busy    atomic.Int64 // deliveries of middlewares, which are at most so many workers
}

// hasRoom reports whether a quarter of the workers has nothing to do, so that a task may wait for
// its key in one.
func (s *server) hasRoom() bool { return 4*s.busy.Load() <= 3*s.workers }

func (s *server) enter() {
	if s != nil {
		s.busy.Add(1)
	}
}

func (s *server) leave() {
	if s != nil {
		s.busy.Add(-1)
	}
}

// Configure has a server treat a task that did not run as one that did not fail: it is not
// counted, and comes back when PostponedError says. It goes around what the Config has already, so
// call it last: your IsFailure and RetryDelayFunc decide about all other errors, your ErrorHandler
// is told of everything but keys that are busy and what a handler has postponed (Postpone), and
// your BaseContext is what the tasks' contexts come from. It panics if config is nil.
//
// Where the Config has none, it sets a TaskCheckInterval of 100 ms and a DelayedTaskCheckInterval
// of 1 s. With asynq's own defaults, 1 s and 5 s, a task that is brought back because its key is
// free would wait that long for a worker that has nothing to do.
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
	self := &server{workers: int64(workers)}
	base := config.BaseContext
	config.BaseContext = func() context.Context {
		ctx := context.Background()
		if base != nil {
			ctx = base()
		}
		return context.WithValue(ctx, serverKey{}, self)
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

// serverOf returns the server whose task has ctx, or nil if it was not configured.
func serverOf(ctx context.Context) *server {
	s, _ := ctx.Value(serverKey{}).(*server)
	return s
}
