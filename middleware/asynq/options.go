package guardasynq

import (
	"context"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// DefaultTTL is a lease's TTL where WithLease says no other: it should be over when asynq brings
// back the task of a worker that has died, which takes it a minute.
const DefaultTTL = 15 * time.Second

// DefaultWait is how long a task waits for its key in its worker where WithWait says nothing else.
const DefaultWait = time.Second

// An Option is a setting of New. What cannot work is refused there.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	refused.List

	key       KeyFunc
	client    *asynq.Client
	inspector *asynq.Inspector
	group     string
	busy      Busy
	every     time.Duration
	wait      time.Duration
	once      time.Duration
	context   func(context.Context, *asynq.Task) context.Context
	perTask   func(context.Context, *asynq.Task) []guard.Option
	lease     []guard.Option
	log       *slog.Logger
	observers []Observer
}

// WithClient gives the middleware a client and an inspector of the Redis that the asynq server
// works from: to enqueue a task again that is on its last attempt, to bring a task that waits for
// its key back as soon as it is free, and to find the result that WithOnce keeps. RetryLater and
// Coalesce need it. They remain the caller's, to be closed after the server has shut down.
func WithClient(client *asynq.Client, inspector *asynq.Inspector) Option {
	return func(s *settings) {
		if client == nil || inspector == nil {
			s.Refuse("WithClient", nil, "must have a client and an inspector")
		}
		s.client, s.inspector = client, inspector
	}
}

// WithGroup has tasks of all types whose middlewares name the same group share their keys, in
// place of each type having keys of its own.
func WithGroup(name string) Option {
	return func(s *settings) {
		if name == "" {
			s.Refuse("WithGroup", nil, "must not be empty")
		}
		s.group = name
	}
}

// WithBusy says what becomes of a task whose key another run holds. Default: RetryLater.
func WithBusy(b Busy) Option {
	return func(s *settings) {
		if b < RetryLater || b > Coalesce {
			s.Refuse("WithBusy", int(b), "is none of RetryLater, Skip, Fail and Coalesce")
		}
		s.busy = b
	}
}

// WithDelay postpones a task that did not run by d, and up to a quarter more, so that not all of
// them come back at once. asynq looks for such tasks once in its DelayedTaskCheckInterval.
// Default: what is left of the lease of the run that holds the key, at most a minute; 5 s if the
// store could not be asked.
func WithDelay(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.every, "WithDelay", d) }
}

// WithWait lets a task wait for its key in its worker, for up to d and no longer than a second
// before its deadline, before WithBusy decides. A worker that waits does nothing else.
//
// With RetryLater and Coalesce, at most one task of a key waits behind one middleware, and only
// while a quarter of the server's workers has nothing to do: tasks of one key do not keep the
// workers from those of others. With Skip and Fail, which end the task, there are no such bounds.
//
// Default: DefaultWait with RetryLater, on a server that went through Configure; others do not
// wait. 0 is no waiting.
func WithWait(d time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.wait, "WithWait", d) }
}

// WithOnce keeps out further runs of a key for the window after a run whose handler returned nil.
// A task that comes in it ends at once, as done, and gets the result of the first one, if there is
// one: what that has written to its asynq.ResultWriter (this needs WithClient) or set by
// guard.Lease.SetRecord.
func WithOnce(window time.Duration) Option {
	return func(s *settings) { s.NotNegative(&s.once, "WithOnce", window) }
}

// WithContext changes the context of a task before anything else sees it, such as by the trace
// that its headers carry on from whoever has enqueued it:
//
//	guardasynq.WithContext(func(ctx context.Context, task *asynq.Task) context.Context {
//		return otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(task.Headers()))
//	})
//
// What f returns must come from ctx.
func WithContext(f func(ctx context.Context, task *asynq.Task) context.Context) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithContext", nil, "must not be nil")
		}
		s.context = f
	}
}

// WithLease sets options of the leases, such as guard.WithTTL, guard.WithHook, and guard.WithFair
// for tasks that wait in their workers. guard.WithWait has no effect: that is for WithWait here,
// and leave guard.WithOnce to WithOnce. The TTL should be well under a minute, see DefaultTTL. It
// has nothing to do with how long tasks take.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.lease = append(s.lease, opts...) }
}

// WithTaskLease adds options for the lease of a single task, such as guard.WithOwnerFrom with what
// its headers say. An option that cannot work fails the task with a *guard.SettingError.
func WithTaskLease(f func(ctx context.Context, task *asynq.Task) []guard.Option) Option {
	return func(s *settings) {
		if f == nil {
			s.Refuse("WithTaskLease", nil, "must not be nil")
		}
		s.perTask = f
	}
}

// WithName names the kind of work, for hooks and observers: one of few. Default: the Guard's, or
// the type of the task.
func WithName(name string) Option { return WithLease(guard.WithName(name)) }

// WithLogger says where to tell what nobody else can be told: that Configure was forgotten, once,
// and that asynq's Redis could not be asked when a task had to be enqueued again. Default:
// slog.Default.
func WithLogger(log *slog.Logger) Option {
	return func(s *settings) {
		if log == nil {
			s.Refuse("WithLogger", nil, "must not be nil")
		}
		s.log = log
	}
}

// WithObserver adds an observer. They are called in the order in which they were added,
// concurrently for several tasks.
func WithObserver(o Observer) Option {
	return func(s *settings) { s.observers = append(s.observers, o) }
}
