package tracing_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/inspect"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// An adapter runs f, as a request or a task with the key "k", in a process of the site.
type adapter func(t *testing.T, s *site, g *guard.Guard, name string, f func(ctx context.Context) error)

// viaHTTP sends a request. It waits for one that is under way for up to 10 s.
func viaHTTP(t *testing.T, s *site, g *guard.Guard, name string, f func(ctx context.Context) error) {
	t.Helper()
	idempotent, err := guardhttp.New(g, guardhttp.FromHeader("Idempotency-Key"), idempotency.WithGlobalKeys(), idempotency.WithWait(10*time.Second))
	require.NoError(t, err)
	handler := idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f(r.Context()) != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	s.in(t.Context(), name, func(ctx context.Context) {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("body"))
		r.Header.Set("Idempotency-Key", `"k"`)
		handler.ServeHTTP(httptest.NewRecorder(), r)
	})
}

// noQueue is a client of asynq that nothing asks: no server delivers these tasks.
var noQueue = guardasynq.WithClient(asynq.NewClient(asynq.RedisClientOpt{}), asynq.NewInspector(asynq.RedisClientOpt{}))

// viaAsynq has a task processed. It is skipped if one with its key does not end within 10 s.
func viaAsynq(t *testing.T, s *site, g *guard.Guard, name string, f func(ctx context.Context) error) {
	t.Helper()
	once, err := guardasynq.New(g, nil, noQueue, guardasynq.WithBusy(guardasynq.Skip), guardasynq.WithWait(10*time.Second), guardasynq.WithOnce(time.Hour, guardasynq.FromPayload()),
		guardasynq.WithLease(guard.WithTTL(ttl)))
	require.NoError(t, err)
	handler := once(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return f(ctx) }))
	s.in(t.Context(), name, func(ctx context.Context) { _ = handler.ProcessTask(ctx, asynq.NewTask("report:build", []byte("k"))) })
}

func TestGolden_adapters(t *testing.T) {
	mine := errors.New("mine: secret")
	for name, via := range map[string]adapter{"http": viaHTTP, "asynq": viaAsynq} {
		for scenario, play := range map[string]func(t *testing.T, s *site){
			"run":     func(t *testing.T, s *site) { via(t, s, s.one, "first", nothing) },
			"failure": func(t *testing.T, s *site) { via(t, s, s.one, "first", func(context.Context) error { return mine }) },
			"replay": func(t *testing.T, s *site) {
				via(t, s, s.one, "first", nothing)
				via(t, s, s.other, "second", nothing)
			},
			"wait": func(t *testing.T, s *site) {
				go via(t, s, s.one, "first", func(context.Context) error { time.Sleep(3 * time.Second); return mine })
				time.Sleep(time.Second)
				via(t, s, s.other, "second", nothing)
			},
			"skip": func(t *testing.T, s *site) {
				over := make(chan struct{})
				go func() {
					defer close(over)
					via(t, s, s.one, "first", sleeps(18*time.Second))
				}()
				time.Sleep(time.Second)
				via(t, s, s.other, "second", nothing)
				<-over
			},
			"loss": func(t *testing.T, s *site) {
				s.store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
				via(t, s, s.one, "first", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			},
			"panic": func(t *testing.T, s *site) {
				require.Panics(t, func() { via(t, s, s.one, "first", func(context.Context) error { panic("secret") }) })
			},
			"store-failure": func(t *testing.T, s *site) {
				s.store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
					return driver.Answer{}, guardtest.Fail(driver.KindAuth)
				}
				via(t, s, s.one, "first", nothing)
				time.Sleep(time.Minute)
			},
		} {
			t.Run(name+"/"+scenario, func(t *testing.T) {
				inNamelessSite(t, name+"-"+scenario, play)
			})
		}
	}
}

// A crontab is the Jobs of both processes of a site, with the same job each ten seconds.
type crontab struct {
	*site
	one, other *guardcron.Jobs
	crons      []*cron.Cron
}

// inCrontab runs f, with which the first process has started and has seen no tick yet.
func inCrontab(t *testing.T, golden string, job func(ctx context.Context) error, f func(t *testing.T, c *crontab), opts ...guardcron.Option) {
	t.Helper()
	inNamelessSite(t, golden, func(t *testing.T, s *site) {
		c := &crontab{site: s}
		c.one = c.start(t, s.one, job, opts)
		synctest.Wait()
		f(t, c)
		c.stop(t)
	})
}

func (c *crontab) stop(t *testing.T) {
	t.Helper()
	for _, stop := range c.crons {
		<-stop.Stop().Done()
	}
	require.NoError(t, c.one.Close(t.Context()))
	if c.other != nil {
		require.NoError(t, c.other.Close(t.Context()))
	}
}

func (c *crontab) start(t *testing.T, g *guard.Guard, job func(ctx context.Context) error, opts []guardcron.Option) *guardcron.Jobs {
	t.Helper()
	schedule := cron.New(cron.WithLocation(time.UTC), cron.WithChain(cron.Recover(cron.DiscardLogger)))
	jobs, err := guardcron.New(g, schedule, opts...)
	require.NoError(t, err)
	_, err = jobs.AddFunc("nightly", "@every 10s", job)
	require.NoError(t, err)
	schedule.Start()
	c.crons = append(c.crons, schedule)
	return jobs
}

func TestGolden_cron(t *testing.T) {
	const oneTick = 11 * time.Second
	waits := func(d time.Duration) func(t *testing.T, c *crontab) {
		return func(*testing.T, *crontab) { time.Sleep(d) } // virtual time
	}
	t.Run("run", func(t *testing.T) { inCrontab(t, "cron-run", nothing, waits(oneTick)) })
	t.Run("failure", func(t *testing.T) {
		inCrontab(t, "cron-failure", func(context.Context) error { return errors.New("mine: secret") }, waits(oneTick))
	})
	t.Run("skip", func(t *testing.T) { // in the other process
		inCrontab(t, "cron-skip", sleeps(2*time.Second), func(t *testing.T, c *crontab) {
			time.Sleep(time.Millisecond) // its clock is a little behind
			c.other = c.start(t, c.site.other, sleeps(2*time.Second), nil)
			time.Sleep(14 * time.Second)
		})
	})
	t.Run("overlap", func(t *testing.T) { inCrontab(t, "cron-overlap", sleeps(13*time.Second), waits(21*time.Second)) })
	t.Run("paused", func(t *testing.T) {
		inCrontab(t, "cron-paused", nothing, func(t *testing.T, c *crontab) {
			require.NoError(t, c.one.Pause(t.Context(), "nightly", 0, inspect.By{Actor: "alice"}))
			time.Sleep(oneTick)
		})
	})
	t.Run("panic", func(t *testing.T) {
		inCrontab(t, "cron-panic", func(context.Context) error { panic("secret") }, waits(oneTick))
	})
	t.Run("loss", func(t *testing.T) {
		inCrontab(t, "cron-loss", func(ctx context.Context) error { <-ctx.Done(); return nil }, waits(14*time.Second), guardcron.WithMaxHold(3*time.Second))
	})
	t.Run("store-failure", func(t *testing.T) {
		inNamelessSite(t, "cron-store-failure", func(t *testing.T, s *site) {
			s.store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				return driver.Answer{}, guardtest.Fail(driver.KindAuth)
			}
			c := &crontab{site: s}
			c.one = c.start(t, s.one, nothing, nil)
			time.Sleep(oneTick)
			c.stop(t)
		})
	})
	t.Run("allow", func(t *testing.T) {
		inCrontab(t, "cron-allow", sleeps(13*time.Second), waits(21*time.Second), guardcron.WithOverlap(guardcron.Allow))
	})
}

// A run whose handler answers without an error is a success, even if its answer is not kept.
func TestRun_ofWhichNothingIsKeptIsNoFailure(t *testing.T) {
	for name, opts := range map[string][]guardhttp.Option{
		"exclusive": {idempotency.WithMode(idempotency.Exclusive)}, "a policy": {guardhttp.WithPolicy(func(int, http.Header) bool { return false })},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTelescope(t)
			g, err := guard.New(memory.New(), guard.WithNamespace("test"), guard.WithHook(s.hook))
			require.NoError(t, err)
			m, err := guardhttp.New(g, guardhttp.FromHeader("Idempotency-Key"), append(opts, idempotency.WithGlobalKeys())...)
			require.NoError(t, err)
			ran := 0
			handler := m(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ran++; w.WriteHeader(http.StatusAccepted) }))
			for range 2 {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
				r.Header.Set("Idempotency-Key", `"k"`)
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				require.Equal(t, http.StatusAccepted, w.Code)
			}
			require.NoError(t, g.Close(t.Context()))
			require.Equal(t, 2, ran)
			require.Equal(t, []string{"onerun.run.duration{onerun.name=http onerun.result=ok} ×2"}, points(s.metrics(t)["onerun.run.duration"]))
		})
	}
}
