package guardscheduler

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/hibiken/asynq"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

const (
	startDeadline = time.Minute
	// tickMemory is for how long the store remembers that a tick has been enqueued, if the start
	// deadline is not long: more than clocks differ.
	tickMemory = time.Hour
	// defaultTTL is the TTL of a tick's lease: how long a tick stays taken if the process that was
	// going to enqueue it dies.
	defaultTTL = 5 * time.Second
)

// An Option is a setting of New and NewManager. They refuse a setting that cannot work.
type Option func(*settings)

// settings are what the options have set.
type settings struct {
	refused.List

	deadline time.Duration
	catchUp  int
	lease    []guard.Option
	observed []func(Outcome)
	named    bool // the caller has named the lease
	timed    bool // the Guard was given a TTL
}

// newSettings returns the settings that the options make. Err says what is wrong with them.
func newSettings(g *guard.Guard, opts []Option) settings {
	s := settings{deadline: startDeadline}
	refused.Apply(&s.List, &s, opts)
	if g == nil {
		s.Refuse("guard", nil, "must not be nil")
		return s
	}
	if _, ok := g.Adapter().Ledger(); !ok {
		s.Refuse("guard", nil, "its backend must be able to keep the newest tick of an entry (driver.Ledger)")
	}
	s.named, s.timed = g.Adapter().Name(s.lease...) != "", g.Adapter().Given("WithTTL")
	s.Err = errors.Join(s.Err, g.Adapter().Check(unused, s.lease...), g.Check("asynq-tick", s.leaseOptions("")...))
	return s
}

// unused are the options of the leases that a Scheduler cannot honor, and why.
var unused = map[string]string{
	"WithWait":      "has no effect here: a process waits until the one that enqueues the tick has ended",
	"WithOnce":      "has no effect here: a tick is remembered for an hour, or for twice the start deadline",
	"WithOwner":     "would let all processes enqueue a tick at the same time",
	"WithOwnerFrom": "would let all processes enqueue a tick at the same time",
	"WithLimit":     "would let several processes enqueue a tick at the same time",
	"WithShared":    "would let all processes enqueue a tick at the same time",
}

// leaseOptions returns the options of a tick's lease. Its name says that a task of that kind is
// enqueued, unless the caller has named it: the kind alone is the name of the task's run.
func (s *settings) leaseOptions(kind string) []guard.Option {
	opts := slices.Clip(s.lease)
	if !s.timed {
		opts = append([]guard.Option{guard.WithTTL(defaultTTL)}, s.lease...)
	}
	if !s.named {
		opts = append(opts, guard.WithName(enqueueName(kind)))
	}
	return append(opts, guard.WithWait(leaseWait), guard.WithOnce(max(tickMemory, 2*s.deadline)), guard.WithLimit(0))
}

// leaseWait is how long a process waits for one that is enqueueing. It tries again after that.
const leaseWait = 10 * time.Second

func enqueueName(kind string) string {
	if name := "enqueue " + kind; kind != "" && keys.IsName(name) {
		return name
	}
	return "enqueue"
}

// WithStartDeadline sets how late a tick may be enqueued: after a restart, a pause, or an outage
// of the store or the queue. All ticks of that time are, in order, unless other replicas have
// enqueued them. Defaults to one minute.
func WithStartDeadline(d time.Duration) Option {
	return func(s *settings) { s.Positive(&s.deadline, "WithStartDeadline", d) }
}

// WithCatchUp enqueues the newest n of the ticks that are older than the start deadline, the oldest
// first. The others are reported as missed. n is at most 1000. Defaults to 0.
func WithCatchUp(n int) Option {
	return func(s *settings) { s.Between(&s.catchUp, "WithCatchUp", n, 0, ticks.MaxCatchUp) }
}

// WithLease sets options of the lease under which a task is enqueued, such as guard.WithHook and
// guard.WithTTL. The TTL is how long a tick stays taken if a process dies before it has enqueued
// the task.
//
// What cannot work is refused, here and in guard.New: guard.WithWait, guard.WithOnce, and
// what would let several replicas in at once (guard.WithOwner,
// guard.WithOwnerFrom, guard.WithLimit, guard.WithShared). If the Guard has no name, the name is
// "enqueue " and the type of the task. Defaults to the options of the Guard, with a TTL of 5 s if
// guard.New was given none.
func WithLease(opts ...guard.Option) Option {
	return func(s *settings) { s.lease = append(s.lease, opts...) }
}

// TickName is an option of an entry, for Register and asynq.PeriodicTaskConfig. It distinguishes
// entries whose tasks have the same type and payload, such as one for each of several queues. The
// name must be the same in all processes, and stay the same when the program changes. Defaults to
// no name.
func TickName(name string) asynq.Option { return tickOption{value: name} }

// A tickOption is an option that asynq does not know, and ignores.
type tickOption struct{ value string }

// String returns a text with brackets, because asynq's Inspector panics without them.
func (o tickOption) String() string         { return fmt.Sprintf("TickName(%q)", o.value) }
func (o tickOption) Type() asynq.OptionType { return -1 }
func (o tickOption) Value() any             { return o.value }

// isNil reports whether an interface holds nothing, or a nil pointer.
func isNil(i any) bool {
	v := reflect.ValueOf(i)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
