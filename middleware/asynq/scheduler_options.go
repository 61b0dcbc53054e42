package guardasynq

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// The defaults and bounds of schedulers.
const (
	DefaultTickMemory = time.Hour
	MinTickWindow     = time.Minute
	DefaultCatchUp    = time.Minute
	DefaultTickTTL    = 5 * time.Second
	MaxTickTTL        = time.Hour
)

// tickLate is how late the newest tick may be without counting as caught up with: a process that
// is short of processor time is not late.
const tickLate = 10 * time.Second

// A SchedulerOption is a setting of NewScheduler and NewPeriodicTaskManager. What cannot work is
// refused there.
type SchedulerOption func(*tickSettings)

// tickSettings are what the options have set.
type tickSettings struct {
	refused.List

	window  time.Duration
	catchUp time.Duration
	ttl     time.Duration
	lease   []guard.Option
	named   bool // the lease has a name of the caller's
}

// newTickSettings returns what the options come to, with what is wrong about it as err.
func newTickSettings(g *guard.Guard, opts []SchedulerOption) tickSettings {
	s := tickSettings{window: DefaultTickMemory, catchUp: DefaultCatchUp, ttl: DefaultTickTTL}
	refused.Apply(&s.List, &s, opts)
	if s.window < MinTickWindow {
		s.Refuse("WithTickMemory", s.window, fmt.Sprintf("must be at least %v", MinTickWindow))
	}
	if s.ttl < guard.MinTTL || s.ttl > MaxTickTTL {
		s.Refuse("WithTickTTL", s.ttl, fmt.Sprintf("must be from %v to %v", guard.MinTTL, MaxTickTTL))
		s.ttl = DefaultTickTTL
	}
	switch {
	case s.catchUp < 0:
		s.Refuse("WithCatchUp", s.catchUp, "must not be negative")
	case s.catchUp >= s.window:
		s.Refuse("WithCatchUp", s.catchUp, fmt.Sprintf("must be shorter than the tick memory, %v", s.window))
	}
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
		return s
	}
	s.named = g.Adapter().Name(s.lease...) != ""
	_, err := g.Wrap("asynq-tick", func(context.Context) error { return nil }, s.leaseOptions("")...)
	s.Err = errors.Join(s.Err, err)
	return s
}

// leaseOptions returns the options of a tick's lease. Its name says that a task of that kind is
// enqueued, unless the caller has named it: the kind alone is the name of the task's run.
func (s *tickSettings) leaseOptions(kind string) []guard.Option {
	opts := append([]guard.Option(nil), s.lease...)
	if !s.named && kind != "" {
		opts = append(opts, guard.WithName(enqueueName(kind)))
	}
	// A lease that nobody renews ends after a TTL, and who waits looks for it at least each half
	// of one.
	return append(opts, guard.WithTTL(s.ttl), guard.WithWait(3*s.ttl), guard.WithOnce(s.window))
}

func enqueueName(kind string) string {
	const prefix = "enqueue "
	if len(prefix)+len(kind) > longestName {
		return "enqueue"
	}
	return prefix + kind
}

// WithTickMemory says for how long it is remembered that a tick has been enqueued, from
// MinTickWindow to ten years. It must be longer than the clocks of the processes differ, and the
// catch-up on top of that. Default: DefaultTickWindow, one hour.
func WithTickMemory(d time.Duration) SchedulerOption {
	return func(s *tickSettings) { s.window = d }
}

// WithCatchUp says how late a tick may still be enqueued, by a process that was paused or short of
// processor time when it was due: all that it has missed in that time are, in order, unless others
// have seen to them. The newest may be 10 s late in any case, so that 0 leaves only that. It must
// be shorter than the window. What was due before the process registered the entry is never caught
// up with. Default: DefaultCatchUp, one minute.
func WithCatchUp(d time.Duration) SchedulerOption {
	return func(s *tickSettings) { s.catchUp = d }
}

// WithTickTTL sets for how long a tick stays taken after the process died that was going to
// enqueue it: another one goes on then. The others wait for up to three times as long, and a
// process that cannot enqueue tries for twice as long. From guard.MinTTL to MaxTickTTL. Default:
// DefaultTickTTL, 5 s.
func WithTickTTL(ttl time.Duration) SchedulerOption {
	return func(s *tickSettings) { s.ttl = ttl }
}

// WithTickLease sets options of the lease under which a task is enqueued, such as guard.WithHook.
// guard.WithTTL, guard.WithWait and guard.WithOnce have no effect: that is for WithTickTTL and
// WithTickMemory. guard.WithOwner would let all replicas in at once. The default of guard.WithName
// is the Guard's name, or else "enqueue " and the type of the task.
func WithTickLease(opts ...guard.Option) SchedulerOption {
	return func(s *tickSettings) { s.lease = append(s.lease, opts...) }
}

// TickName is an option of an entry, for Register and asynq.PeriodicTaskConfig. It tells entries
// apart whose tasks have the same type and payload, such as one for each of several queues. The
// name must be the same in all processes, and be kept when the program changes.
func TickName(name string) asynq.Option { return tickOption{kind: "TickName", value: name} }

// A tickOption is an option that asynq does not know, and leaves alone.
type tickOption struct{ kind, value string }

// String has brackets in it, without which asynq's Inspector panics.
func (o tickOption) String() string         { return fmt.Sprintf("%s(%q)", o.kind, o.value) }
func (o tickOption) Type() asynq.OptionType { return -1 }
func (o tickOption) Value() any             { return o.value }

// isNilConn reports whether r is nil, or holds a nil pointer.
func isNilConn(r asynq.RedisConnOpt) bool {
	v := reflect.ValueOf(r)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
