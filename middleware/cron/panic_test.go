package guardcron_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// caught is a cron.Logger that keeps what cron.Recover has caught.
type caught struct {
	mu     sync.Mutex
	errs   []error
	stacks []string
}

func (c *caught) Info(string, ...any) {}

func (c *caught) Error(err error, _ string, about ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
	c.stacks = append(c.stacks, about[1].(string))
}

func (c *caught) cron() []cron.Option { return []cron.Option{cron.WithChain(cron.Recover(c))} }

var errPanic = errors.New("panicked with an error")

//go:noinline
func panicInTheJob(value any) { panic(value) }

// A panic propagates as it would without us: with the same value, from the same place.
func TestPanic_passesToRecover(t *testing.T) {
	t.Parallel()
	for title, value := range map[string]any{"an error": errPanic, "text": "panicked with text"} {
		for _, overlap := range []guardcron.Overlap{guardcron.Skip, guardcron.Allow} {
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					var c caught
					p := s.process("a", setup{cron: c.cron()})
					p.add("job", "* * * * *", func(context.Context) error { panicInTheJob(value); return nil }, guardcron.WithOverlap(overlap))
					p.cron.Start()
					s.until("2026-06-15T12:02:30Z")
					require.Len(s.t, c.errs, 2, "the lease is free for the next tick")
					require.EqualError(s.t, c.errs[0], fmt.Sprint(value))
					if err, ok := value.(error); ok {
						require.Same(s.t, err, c.errs[0])
					}
					require.Contains(s.t, c.stacks[0], "panicInTheJob(")
					require.NotContains(s.t, c.stacks[0], "[recovered", "no code has recovered it, and panicked again")
					require.Equal(s.t, 1, strings.Count(c.stacks[0], "\npanic("))
					require.Equal(s.t, []string{"12:01:00 failed", "12:02:00 failed"}, p.outcomes("job"))
				})
			})
		}
	}
}

func TestPanic_isRunOnceOrByAnotherProcess(t *testing.T) {
	t.Parallel()
	for _, breaks := range []func(){func() { panic(errPanic) }, runtime.Goexit} {
		for title, test := range map[string]struct {
			opts []guardcron.Option
			want []string
		}{
			"once by default":  {nil, []string{"13:00:00 failed"}},
			"again with rerun": {[]guardcron.Option{guardcron.WithRerun()}, []string{"13:00:00 failed", "13:00:00 ran"}},
		} {
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				onSite(t, noon, func(s *site) {
					var c caught
					all := s.three(setup{cron: c.cron()}, "0 * * * *", func(context.Context) error {
						if len(s.ticks()) == 1 {
							breaks()
						}
						return nil
					}, test.opts...)
					s.until("2026-06-15T13:00:59Z")
					require.ElementsMatch(s.t, test.want, all[0].outcomes("job"))
					who := map[string]bool{}
					for _, r := range all[0].records("job") {
						who[r.Who] = true
					}
					require.Len(s.t, who, len(test.want), "each by another one")
				})
			})
		}
	}
}

func TestPanic_byHand(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		p := s.process("a", setup{})
		broken := true
		p.add("job", "0 * * * *", func(context.Context) error {
			if broken {
				panicInTheJob(errPanic)
			}
			return nil
		})
		require.PanicsWithValue(s.t, errPanic, func() { _ = p.RunNow(context.Background(), "job") })
		broken = false
		require.NoError(s.t, p.RunNow(context.Background(), "job"), "its lease is free")
		require.ElementsMatch(s.t, []string{"by hand failed", "by hand ran"}, p.outcomes("job"))
		require.NoError(s.t, p.Close(context.Background()), "and it counts as ended")
	})
}

// A job has the lease of its run in its context, with a fence that grows.
func TestContext_hasTheLeaseAndTheFence(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var fences []uint64
		s.three(setup{}, "* * * * *", func(ctx context.Context) error {
			fences = append(fences, guard.Fence(ctx))
			return nil
		})
		s.until("2026-06-15T12:05:30Z")
		require.Len(s.t, fences, 5)
		require.IsIncreasing(s.t, fences)
	})
}

// A cron.Job has no context and no error: a panic is its failure.
func TestAddFunc_ofACronJob(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var c caught
		var calls int
		for _, who := range []string{"a", "b", "c"} {
			p := s.process(who, setup{cron: c.cron()})
			var job cron.Job = cron.FuncJob(func() {
				if calls++; calls == 2 {
					panic(errPanic)
				}
			})
			id, err := p.AddFunc("job", "* * * * *", func(context.Context) error { job.Run(); return nil })
			require.NoError(s.t, err)
			require.True(s.t, p.cron.Entry(id).Valid())
			p.cron.Start()
		}
		p := s.process("reader", setup{})
		s.until("2026-06-15T12:03:30Z")
		require.Equal(s.t, 3, calls)
		require.Equal(s.t, []string{"12:01:00 ran", "12:02:00 failed", "12:03:00 ran"}, p.outcomes("job"))
		require.Equal(s.t, []error{errPanic}, c.errs)
	})
}

// Options of the leases reach them.
func TestWithLease_hooks(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var mu sync.Mutex // leases are taken at the same time
		keys := map[string]string{}
		hook := guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
			mu.Lock()
			defer mu.Unlock()
			keys[e.Key] = e.Name
		}}
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", hanging(time.Second), guardcron.WithLease(guard.WithHook(hook)))
		p.cron.Start()
		s.until("2026-06-15T14:30:00Z")
		require.Equal(s.t, map[string]string{"cron:job@2026-06-15T13:00:00Z": "job", "cron:job@2026-06-15T14:00:00Z": "job", "cron:job": "job", "cron:job@catch-up": "job"}, keys)
		require.Len(s.t, s.ticks(), 2)
	})
}

// The label of a lease names the process, also one whose name looks like a word of the package.
func TestWithLease_labelAndName(t *testing.T) {
	t.Parallel()
	onSite(t, noon, func(s *site) {
		var mu sync.Mutex
		labels, names := map[string]string{}, map[string]bool{}
		hook := guard.Hook{AcquireEnd: func(_ context.Context, e guard.AcquireEvent) {
			mu.Lock()
			defer mu.Unlock()
			names[e.Name] = true
			if e.Err != nil {
				labels[e.Key] = e.Label
			}
		}}
		p := s.process("a", setup{})
		p.add("job", "0 * * * *", hanging(90*time.Minute), guardcron.WithLease(guard.WithHook(hook), guard.WithLabel("catch-up worker"), guard.WithName("reports")))
		p.cron.Start()
		s.until("2026-06-15T14:00:30Z")
		require.Equal(s.t, map[string]string{"cron:job": "cron:job@2026-06-15T13:00:00Z catch-up worker"}, labels)
		require.Equal(s.t, map[string]bool{"reports": true}, names)
		require.Equal(s.t, []string{"13:00:00 running", "14:00:00 skipped"}, p.outcomes("job"), "no run is taken for one of an old tick")
		for _, r := range p.records("job") {
			require.Equal(s.t, "catch-up worker", r.Who)
		}
		_, err := p.AddFunc("other", "@hourly", hanging(0), guardcron.WithLease(guard.WithLabel(strings.Repeat("l", 161))))
		require.ErrorContains(s.t, err, "WithLabel")
	})
}

// A firing is late, and several ticks can still start. The newest is first, and the job breaks in
// it.
func TestPanic_atALateFiringCostsNoOtherTick(t *testing.T) {
	t.Parallel()
	for title, breaks := range map[string]func(){"panic": func() { panic(errPanic) }, "Goexit": runtime.Goexit} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			onSite(t, noon, func(s *site) {
				p := s.process("a", setup{})
				id := p.add("job", "* * * * *", func(ctx context.Context) error {
					if tick, _ := guardcron.Tick(ctx); tick.Minute() == 6 {
						breaks()
					}
					return nil
				}, guardcron.WithStartDeadline(150*time.Second))
				p.cron.Start()
				s.until("2026-06-15T12:01:30Z")
				guardcron.SetClock(p.Jobs, s.base+5*time.Minute) // it is 12:06:30 then
				job := p.cron.Entry(id).WrappedJob
				go func() { // as the Cron does, with a cron.Recover
					defer func() { _ = recover() }()
					job.Run()
				}()
				s.sleep(time.Second)
				require.Equal(s.t, []string{"12:01:00 ran", "12:02:00-12:03:00 missed", "12:04:00 ran", "12:05:00 ran", "12:06:00 failed"}, p.outcomes("job"))
			})
		})
	}
}
