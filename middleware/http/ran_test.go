package guardhttp_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Every error of an Outcome, and of a Problem, says whether the handler ran.
func TestOutcome_errorsSayWhetherTheHandlerRan(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	fails := func(*http.Request) (string, error) { return "", broken }
	invalid := func(*http.Request) (string, error) {
		return "", &idempotency.KeyError{From: "header X", Reason: "is odd"}
	}
	fail := func(kind driver.StoreErrorKind) func(*outageSite, context.CancelFunc) {
		return func(s *outageSite, _ context.CancelFunc) {
			s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				return driver.Answer{}, guardtest.Fail(kind)
			}
		}
	}
	for name, c := range map[string]struct {
		key    guardhttp.KeyFunc
		opts   []guardhttp.Option
		before func(s *outageSite, cancel context.CancelFunc)
		result idempotency.Result
		status int
	}{
		"no key":      {key: func(*http.Request) (string, error) { return "", idempotency.ErrNoKey }, result: idempotency.KeyMissing},
		"invalid key": {key: invalid, result: idempotency.KeyInvalid},
		"key fails":   {key: fails, result: idempotency.Refused},
		"print fails": {
			opts:   []guardhttp.Option{guardhttp.WithFingerprint(func(*http.Request, []byte) ([]byte, error) { return nil, broken })},
			result: idempotency.BodyInvalid,
		},
		"too large": {opts: []guardhttp.Option{guardhttp.WithMaxBody(0)}, result: idempotency.BodyTooLarge},
		"corrupt": {before: func(s *outageSite, _ context.CancelFunc) {
			s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) { return guardtest.Done([]byte("none")) }
		}, result: idempotency.NotReplayable},
		"away":         {before: fail(driver.KindConnection), result: idempotency.Unavailable},
		"closed store": {before: fail(driver.KindClosed), result: idempotency.Unavailable},
		"left before":  {before: func(_ *outageSite, cancel context.CancelFunc) { cancel() }, result: idempotency.Canceled},
		"left while it asks": {before: func(s *outageSite, cancel context.CancelFunc) {
			s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				cancel()
				return driver.Answer{}, guardtest.ErrUnscripted
			}
		}, result: idempotency.Canceled},
		"left when it was granted": {opts: []guardhttp.Option{idempotency.WithLease(guard.WithHook(guard.Hook{
			RunStart: func(ctx context.Context, _ guard.RunEvent) context.Context {
				ctx.Value(cancelKey{}).(context.CancelFunc)()
				return ctx
			},
		}))}, result: idempotency.Canceled},
		"degraded": {before: fail(driver.KindClosed), opts: []guardhttp.Option{idempotency.WithFailOpen()}, result: idempotency.Degraded},
		"degraded, without an answer": {opts: []guardhttp.Option{idempotency.WithFailOpen()}, before: func(s *outageSite, _ context.CancelFunc) {
			s.OnAcquire = func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) {
				return driver.Answer{}, guardtest.Hang(ctx)
			}
		}, result: idempotency.Degraded},
		"no memory": {before: fail(driver.KindOOM), opts: []guardhttp.Option{idempotency.WithFailOpen()}, result: idempotency.Unavailable},
		"no marker": {before: func(s *outageSite, _ context.CancelFunc) {
			s.OnRelease = func(_ context.Context, n int, _ driver.Claim, _ driver.After) (bool, error) {
				if n <= 3 { // the tries of the run
					return false, guardtest.Fail(driver.KindConnection)
				}
				return false, guardtest.ErrUnscripted
			}
		}, result: idempotency.Ran},
		"not held any more": {result: idempotency.Ran, before: func(s *outageSite, _ context.CancelFunc) {
			s.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) { return false, nil }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var problem error
			opts := append(slices.Clip(c.opts), guardhttp.WithProblems(func(w http.ResponseWriter, r *http.Request, p guardhttp.Problem) {
				problem = p.Err
				p.ServeHTTP(w, r)
			}))
			inOutageWith(t, c.key, func(t *testing.T, s *outageSite) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.before != nil {
					c.before(s, cancel)
				}
				ctx = context.WithValue(ctx, cancelKey{}, cancel)
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader("b"))
				r.Header.Set("Idempotency-Key", "k")
				r, outcome := track(r)
				s.handler.ServeHTTP(httptest.NewRecorder(), r)
				o := outcome()
				require.Equal(t, c.result, o.Result)
				require.Error(t, o.Err)
				ran := s.runs.Load() > 0
				require.Equal(t, ran, guard.Ran(o.Err), "%v", o.Err)
				if problem != nil {
					require.Equal(t, ran, guard.Ran(problem), "%v", problem)
				}
			}, opts...)
		})
	}
}

type cancelKey struct{}
