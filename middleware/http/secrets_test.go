package guardhttp_test

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// sentCommands is a redis.Hook that keeps all that is sent to Redis.
type sentCommands struct {
	mu  sync.Mutex
	all strings.Builder
}

func (c *sentCommands) keep(commands ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, command := range commands {
		for _, arg := range command.Args() {
			if b, ok := arg.([]byte); ok {
				arg = string(b)
			}
			fmt.Fprintln(&c.all, arg)
		}
	}
}

func (c *sentCommands) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

func (c *sentCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *sentCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error { c.keep(command); return next(ctx, command) }
}

func (c *sentCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		c.keep(commands...)
		return next(ctx, commands)
	}
}

// allInRedis returns all keys with their values, as text.
func allInRedis(t *testing.T, rdb *redis.Client) string {
	t.Helper()
	var all strings.Builder
	keys, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		kind, err := rdb.Type(t.Context(), key).Result()
		require.NoError(t, err)
		fmt.Fprintln(&all, key)
		switch kind {
		case "string":
			fmt.Fprintln(&all, rdb.Get(t.Context(), key).Val())
		case "hash":
			fmt.Fprintln(&all, rdb.HGetAll(t.Context(), key).Val())
		default:
			require.Fail(t, "there is a "+kind)
		}
	}
	return all.String()
}

// Row 41: the key that a client sends, its identity and its request appear nowhere. The answer is
// in the store, of course.
func TestObserver_noRawKeyAnywhere(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(redis.UniversalClient, func(*redis.Client)) guard.Locker{
		"single": func(c redis.UniversalClient, f func(*redis.Client)) guard.Locker {
			return single.New(c, single.WithClientSetup(f))
		},
		"reentrant": func(c redis.UniversalClient, f func(*redis.Client)) guard.Locker {
			return reentrant.New(c, reentrant.WithClientSetup(f))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const key, scope, body = "the-raw-key", "the-raw-tenant", "the-raw-body"
			server := redistest.Start(t)
			admin, rdb := server.Client(t), server.Client(t)
			sent := new(sentCommands)
			rdb.AddHook(sent)
			var mu sync.Mutex
			var seen strings.Builder
			note := func(what any, err error) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintf(&seen, "%+v %#v %v\n", what, what, err)
				for ; err != nil; err = errors.Unwrap(err) {
					fmt.Fprintf(&seen, "%+v %#v\n", err, err)
				}
			}
			hook := guard.Hook{
				AcquireStart: func(ctx context.Context, e guard.Event) context.Context { note(e, nil); return ctx },
				Wait:         func(_ context.Context, e guard.WaitEvent) { note(e, nil) },
				AcquireEnd:   func(_ context.Context, e guard.AcquireEvent) { note(e, e.Err) },
				Skip:         func(_ context.Context, e guard.SkipEvent) { note(e, e.Err) },
				RunStart:     func(ctx context.Context, e guard.RunEvent) context.Context { note(e, nil); return ctx },
				RunEnd:       func(_ context.Context, e guard.RunEndEvent) { note(e, e.Err) },
				Renew:        func(_ context.Context, e guard.RenewEvent) { note(e, e.Err) },
				Loss:         func(_ context.Context, e guard.LossEvent) { note(e, e.Err) },
				Release:      func(_ context.Context, e guard.ReleaseEvent) { note(e, e.Err) },
			}
			observer := func(_ context.Context, o idempotency.Outcome) { note(o, o.Err) }
			problem := func(w http.ResponseWriter, r *http.Request, p guardhttp.Problem) { note(p, p.Err); p.ServeHTTP(w, r) }
			gates := make(chan *lifeGate, 1)
			s := lifeServe(t, lifeGuard(t, open(rdb, func(own *redis.Client) { own.AddHook(sent) }), guard.WithTTL(lifeTTL/2)), func(w http.ResponseWriter, r *http.Request) {
				select {
				case gate := <-gates:
					gate.pass(r.Context())
				default:
				}
				fmt.Fprint(w, "an answer")
			}, idempotency.WithLease(guard.WithHook(hook)), idempotency.WithObserver(observer), guardhttp.WithProblems(problem),
				idempotency.WithWait(20*time.Millisecond))
			s.URL += "/a/path"
			post := func(key, body string) httpAnswer { return s.post(t, key, body, "X-Tenant", scope) }

			gate := newLifeGate(t)
			gates <- gate
			first := s.start(t.Context(), key, body, "X-Tenant", scope)
			gate.await(t)
			requireProblem(t, post(key, body), http.StatusConflict, idempotency.InFlight)
			stored := allInRedis(t, admin)
			gate.open()
			require.NoError(t, lifeReceive(t, first, "an answer").err)
			requireReplay(t, post(key, body), http.StatusOK, "an answer")
			requireProblem(t, post(key, body+" of another"), http.StatusUnprocessableEntity, idempotency.Mismatch)
			requireProblem(t, post(key+" x", body), http.StatusBadRequest, idempotency.KeyInvalid)
			requireProblem(t, post(key+strings.Repeat("-", 300), body), http.StatusBadRequest, idempotency.KeyInvalid)
			stored += allInRedis(t, admin)

			gate = newLifeGate(t)
			gates <- gate
			second := s.start(t.Context(), key+"-2", body, "X-Tenant", scope) // loses its lease
			handler := gate.await(t)
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			lifeReceive(t, handler.Done(), "the end of a context")
			gate.open()
			require.NoError(t, lifeReceive(t, second, "an answer").err)
			server.Kill()
			requireProblem(t, post(key, body), http.StatusServiceUnavailable, idempotency.Unavailable)
			s.log.await(t, 8)
			server.Restart()

			mu.Lock()
			defer mu.Unlock()
			require.Contains(t, seen.String(), "guard.LostError")
			require.Contains(t, seen.String(), "driver.StoreError")
			require.Contains(t, sent.String(), "an answer")
			require.Contains(t, stored, "an answer")
			for where, text := range map[string]string{"hooks, observers and problems": seen.String(), "commands": sent.String(), "Redis": stored} {
				for _, secret := range []string{key, scope, body, "a/path"} {
					for _, form := range []string{
						secret, hex.EncodeToString([]byte(secret)), base64.RawStdEncoding.EncodeToString([]byte(secret)),
						fmt.Sprintf("%d", []byte(secret)), url.QueryEscape(secret),
					} {
						require.NotContains(t, text, form, where)
					}
				}
			}
		})
	}
}
