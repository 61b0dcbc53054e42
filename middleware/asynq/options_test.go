package guardasynq_test

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
)

// optionsGuard returns a Guard that needs no server.
func optionsGuard(t *testing.T, opts ...guard.Option) *guard.Guard {
	t.Helper()
	g, err := guard.New(memory.New(), append([]guard.Option{guard.WithNamespace("test")}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// optionsNamed returns the settings that an error names.
func optionsNamed(t *testing.T, err error) (named []string) {
	t.Helper()
	var walk func(error)
	walk = func(err error) {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range several.Unwrap() {
				walk(err)
			}
			return
		}
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		require.NotEmpty(t, setting.Reason)
		named = append(named, setting.Setting)
	}
	require.Error(t, err)
	walk(err)
	return named
}

func TestOptions_thatCannotWork(t *testing.T) {
	t.Parallel()
	g := optionsGuard(t)
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // which is never asked
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)
	given := guardasynq.WithClient(client, inspector)
	for name, c := range map[string]struct {
		setting string
		opts    []guardasynq.Option // added to a client
	}{
		"a nil option":              {"Option", []guardasynq.Option{nil}},
		"a nil client":              {"WithClient", []guardasynq.Option{guardasynq.WithClient(nil, inspector), given}},
		"a nil inspector":           {"WithClient", []guardasynq.Option{guardasynq.WithClient(client, nil), given}},
		"a group without a name":    {"WithGroup", []guardasynq.Option{guardasynq.WithGroup("")}},
		"no such policy":            {"WithBusy", []guardasynq.Option{guardasynq.WithBusy(guardasynq.Coalesce + 1)}},
		"no such policy either":     {"WithBusy", []guardasynq.Option{guardasynq.WithBusy(-1)}},
		"a negative delay":          {"WithDelay", []guardasynq.Option{guardasynq.WithDelay(-time.Second)}},
		"a delay of a lifetime":     {"WithDelay", []guardasynq.Option{guardasynq.WithDelay(math.MaxInt64)}},
		"a negative wait":           {"WithWait", []guardasynq.Option{guardasynq.WithWait(-1)}},
		"a negative window":         {"WithOnce", []guardasynq.Option{guardasynq.WithOnce(-1, guardasynq.FromType())}},
		"a window of a lifetime":    {"WithOnce", []guardasynq.Option{guardasynq.WithOnce(80*365*24*time.Hour, guardasynq.FromType())}},
		"a window and Coalesce":     {"WithOnce", []guardasynq.Option{guardasynq.WithOnce(time.Hour, guardasynq.FromType()), guardasynq.WithBusy(guardasynq.Coalesce)}},
		"no repeats":                {"WithOnce", []guardasynq.Option{guardasynq.WithOnce(time.Hour, nil)}},
		"nil options of a task":     {"WithTaskLease", []guardasynq.Option{guardasynq.WithTaskLease(nil)}},
		"a long name":               {"WithName", []guardasynq.Option{guardasynq.WithLease(guard.WithName(strings.Repeat("n", 129)))}},
		"a short TTL":               {"WithTTL", []guardasynq.Option{guardasynq.WithLease(guard.WithTTL(time.Millisecond))}},
		"a nil option of the lease": {"Option", []guardasynq.Option{guardasynq.WithLease(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := guardasynq.New(g, guardasynq.FromType(), append([]guardasynq.Option{given}, c.opts...)...)
			require.Equal(t, []string{c.setting}, optionsNamed(t, err))
			require.Nil(t, m)
		})
	}
}

// The longest values are no less than long: nothing that is added to them overflows.
func TestOptions_theLongest(t *testing.T) {
	t.Parallel()
	years := 10 * 365 * 24 * time.Hour
	s, w, holder := aqHolding(t, aqConfig(), guardasynq.WithDelay(years))
	s.enqueue(t, "import", aqJSON("k", "1"), asynq.TaskID("1"))
	require.GreaterOrEqual(t, s.outcomes.await(t, resultPostponed, 1)[0].After, years)
	s.awaitState(t, "1", asynq.TaskStateRetry)
	holder.returns(nil)
	w.next(t).returns(nil) // the end of the run brings it
	m := s.middleware(t, guardasynq.FromType(), guardasynq.WithBusy(guardasynq.Skip), guardasynq.WithWait(guard.Forever))
	wrapped := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return guardasynq.Snooze(math.MaxInt64) }))
	var postponed *guardasynq.PostponedError
	require.ErrorAs(t, wrapped.ProcessTask(t.Context(), asynq.NewTask("export", nil)), &postponed)
	require.Equal(t, time.Duration(math.MaxInt64), postponed.After)
	config := asynq.Config{TaskCheckInterval: -1, DelayedTaskCheckInterval: -1}
	config = guardasynq.Configure(config)
	require.Positive(t, min(config.TaskCheckInterval, config.DelayedTaskCheckInterval))
}

// A task that is not guarded has no key, so nothing waits for one.
func TestCoalesce_anUnguardedTaskLooksForNoFollowUp(t *testing.T) {
	t.Parallel()
	calls := 0
	g := optionsGuard(t, guard.WithNamespace("test"), guard.WithHook(guard.Hook{Call: func(context.Context, guard.CallEvent) { calls++ }}))
	m, err := guardasynq.New(g, guardasynq.Optional(guardasynq.FromJSON("id")), aqNoClient(t), guardasynq.WithBusy(guardasynq.Coalesce))
	require.NoError(t, err)
	none := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	require.NoError(t, m(none).ProcessTask(t.Context(), asynq.NewTask("import", nil)))
	require.Zero(t, calls, "calls to the store")
}

func TestOptions_theirMistakesComeInOneError(t *testing.T) {
	t.Parallel()
	m, err := guardasynq.New(nil, nil, nil, guardasynq.WithGroup(""), guardasynq.WithBusy(17), guardasynq.WithDelay(-1), guardasynq.WithOnce(-1, nil))
	require.Nil(t, m)
	require.Equal(t, []string{"Option", "WithGroup", "WithBusy", "WithDelay", "WithOnce", "WithOnce", "key", "WithClient", "guard"}, optionsNamed(t, err))
	require.ErrorContains(t, err, "guard: WithBusy(17): is none of Requeue, Skip, Fail and Coalesce")
	require.ErrorContains(t, err, "guard: WithDelay(-1ns): must not be negative")
}

func TestOptions_eachPolicyNeedsAClient(t *testing.T) {
	t.Parallel()
	g := optionsGuard(t)
	for busy, named := range map[guardasynq.BusyPolicy]string{guardasynq.Requeue: "WithClient", guardasynq.Coalesce: "WithClient", guardasynq.Skip: "WithClient", guardasynq.Fail: "WithClient"} {
		_, err := guardasynq.New(g, guardasynq.FromType(), guardasynq.WithBusy(busy))
		require.Equal(t, []string{named}, optionsNamed(t, err))
	}
}

func TestOptions_coalesceNeedsALedger(t *testing.T) {
	t.Parallel()
	g, err := guard.New(&guardtest.Scripted{}, guard.WithNamespace("test"))
	require.NoError(t, err)
	_, err = guardasynq.New(g, guardasynq.FromType(), aqNoClient(t), guardasynq.WithBusy(guardasynq.Coalesce))
	require.Equal(t, []string{"WithBusy"}, optionsNamed(t, err))
	require.ErrorContains(t, err, "driver.Ledger")
	m, err := guardasynq.New(g, guardasynq.FromType(), aqNoClient(t))
	require.NoError(t, err)
	require.PanicsWithValue(t, "guardasynq: the handler must not be nil", func() { m(nil) })
}

// aqNoClient is a client of nothing, for what never asks it.
func aqNoClient(t *testing.T) guardasynq.Option {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return guardasynq.WithClient(asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb))
}

func TestOptions_nameOfTheWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard []guard.Option
		opts  []guardasynq.Option
		typ   string
		want  string
	}{
		"the type":        {typ: "import", want: "import"},
		"a type too long": {typ: strings.Repeat("t", 129), want: "asynq"},
		"the Guard's":     {guard: []guard.Option{guard.WithName("of the guard")}, typ: "import", want: "of the guard"},
		"the option's":    {guard: []guard.Option{guard.WithName("of the guard")}, opts: []guardasynq.Option{guardasynq.WithLease(guard.WithName("mine"))}, typ: "import", want: "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			var log aqLog
			g := optionsGuard(t, append(c.guard, guard.WithHook(guard.Hook{RunEnd: func(_ context.Context, e guard.RunEndEvent) { got = e.Name }}))...)
			m, err := guardasynq.New(g, guardasynq.FromType(), append(c.opts, aqNoClient(t), guardasynq.WithBusy(guardasynq.Skip), aqObserve(log.add))...)
			require.NoError(t, err)
			none := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
			require.NoError(t, m(none).ProcessTask(t.Context(), asynq.NewTask(c.typ, nil)))
			require.Equal(t, c.want, got)
			require.Equal(t, c.want, log.of(resultRan)[0].Name)
		})
	}
}

func TestOptions_theLeaseIsOf15Seconds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		guard []guard.Option
		opts  []guardasynq.Option
		ttl   time.Duration
	}{
		"by default":  {ttl: 15 * time.Second},
		"the Guard's": {guard: []guard.Option{guard.WithTTL(time.Minute)}, ttl: time.Minute},
		"WithLease":   {opts: []guardasynq.Option{guardasynq.WithLease(guard.WithTTL(40 * time.Second))}, ttl: 40 * time.Second},
		"WithTaskLease": {opts: []guardasynq.Option{guardasynq.WithTaskLease(func(_ context.Context, task *asynq.Task) []guard.Option {
			return []guard.Option{guard.WithTTL(time.Duration(len(task.Payload())) * time.Second)}
		})}, ttl: 21 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claimed := &claimed{Wrapper: driver.Wrapper{Locker: memory.New()}}
			g, err := guard.New(claimed, append(c.guard, guard.WithNamespace("test"))...)
			require.NoError(t, err)
			m, err := guardasynq.New(g, guardasynq.FromType(), append(c.opts, aqNoClient(t))...)
			require.NoError(t, err)
			run := m(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil }))
			require.NoError(t, run.ProcessTask(t.Context(), asynq.NewTask("import", []byte("a payload of 21 bytes"))))
			require.Equal(t, c.ttl, claimed.TTL)
			require.NotContains(t, claimed.Key, "import")
		})
	}
}

// A claimed is a store that keeps the last claim.
type claimed struct {
	driver.Wrapper
	driver.Claim
}

func (l *claimed) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	l.Claim = c
	return l.Wrapper.TryAcquire(ctx, c)
}

func TestOptions_ofATaskThatCannotWork(t *testing.T) {
	t.Parallel()
	s, w := newAqSite(t), newAqWork(t)
	m := s.middleware(t, guardasynq.FromType(), guardasynq.WithTaskLease(func(_ context.Context, task *asynq.Task) []guard.Option {
		return []guard.Option{guard.WithOwnerFrom(func(name string) string { return task.Headers()[name] })}
	}))
	s.serve(t, aqConfig(), m(w))
	t.Cleanup(w.release)
	s.enqueueTask(t, asynq.NewTaskWithHeaders("import", nil, map[string]string{"Onerun-Owner": "a\nb"}), asynq.TaskID("1"), asynq.MaxRetry(3))
	info := s.awaitState(t, "1", asynq.TaskStateRetry)
	require.Equal(t, 1, info.Retried, "it has failed")
	require.Contains(t, info.LastErr, `guardasynq: lease of task "import": guard: WithOwnerFrom`)
	outcome := s.outcomes.await(t, resultRefused, 1)[0]
	var setting *guard.SettingError
	require.ErrorAs(t, outcome.Err, &setting)
	s.enqueueTask(t, asynq.NewTaskWithHeaders("import", nil, map[string]string{"Onerun-Owner": "import of 17"}))
	lease, ok := guard.FromContext(w.next(t).ctx)
	require.True(t, ok)
	require.Equal(t, "import of 17", lease.Owner())
}

// The zero values that the tables call defaults mean off.
func TestOptions_zeroIsOff(t *testing.T) {
	t.Parallel()
	_, err := guardasynq.New(optionsGuard(t), guardasynq.FromType(), aqNoClient(t),
		guardasynq.WithWait(time.Second), guardasynq.WithWait(0), guardasynq.WithOnce(time.Hour, guardasynq.FromType()), guardasynq.WithOnce(0, guardasynq.FromType()),
		guardasynq.WithDelay(time.Second), guardasynq.WithDelay(0))
	require.NoError(t, err)
}
