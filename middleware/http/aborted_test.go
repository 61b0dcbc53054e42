package guardhttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// documented are all results that an Outcome can have.
var documented = []idempotency.Result{
	idempotency.Untouched, idempotency.Ran, idempotency.Replayed, idempotency.InFlight, idempotency.Done,
	idempotency.NotReplayable, idempotency.Mismatch, idempotency.KeyMissing, idempotency.KeyInvalid,
	idempotency.BodyInvalid, idempotency.BodyTooLarge, idempotency.Refused, idempotency.Unavailable,
	idempotency.Degraded, idempotency.Canceled, idempotency.TooManyKeys,
}

// aborts end a function of the user's without a result.
var aborts = map[string]func(){"panic": func() { panic(http.ErrAbortHandler) }, "Goexit": runtime.Goexit}

// An abortingBody is a body of a request that cannot be read.
type abortingBody struct{ abort func() }

func (b abortingBody) Read([]byte) (int, error) { b.abort(); return 0, nil }
func (abortingBody) Close() error               { return nil }

// An abortingStore aborts when it is asked.
type abortingStore struct {
	guard.Locker
	abort func()
}

func (s abortingStore) TryAcquire(context.Context, driver.Claim) (driver.Answer, error) {
	s.abort()
	return driver.Answer{}, nil
}

// Whichever function of the user's panics or ends its goroutine, observers, hooks and Track get
// one of the documented results, which are labels of metrics.
func TestObserver_receivesADocumentedResultWhateverAborts(t *testing.T) {
	t.Parallel()
	for how, abort := range aborts {
		for mode, more := range map[string][]guardhttp.Option{
			"": nil, "shadow": {idempotency.WithShadow()}, "fail open": {idempotency.WithFailOpen()}, "after the record": {idempotency.WithAnswerAfterRecord()},
		} {
			for name, c := range map[string]struct {
				opt    guardhttp.Option
				key    guardhttp.KeyFunc
				h      http.HandlerFunc
				body   bool
				store  bool
				hook   guard.Hook
				result idempotency.Result
			}{
				"KeyFunc":  {key: func(*http.Request) (string, error) { abort(); return "", nil }, result: idempotency.Refused},
				"no key":   {key: func(*http.Request) (string, error) { return "", nil }, result: idempotency.KeyMissing, opt: guardhttp.WithProblems(func(http.ResponseWriter, *http.Request, guardhttp.Problem) { abort() })},
				"scope":    {opt: guardhttp.WithScope(func(*http.Request) (string, error) { abort(); return "", nil }), result: idempotency.Refused},
				"body":     {body: true, result: idempotency.Refused},
				"print":    {opt: guardhttp.WithFingerprint(func(*http.Request, []byte) ([]byte, error) { abort(); return nil, nil }), result: idempotency.Refused},
				"store":    {store: true, result: idempotency.Unavailable},
				"hook":     {hook: guard.Hook{AcquireStart: func(ctx context.Context, _ guard.Event) context.Context { abort(); return ctx }}},
				"end hook": {hook: guard.Hook{RunEnd: func(context.Context, guard.RunEndEvent) { abort() }}, result: idempotency.Ran},
				"handler":  {h: func(http.ResponseWriter, *http.Request) { abort() }, result: idempotency.Ran},
				"policy":   {opt: guardhttp.WithPolicy(func(int, http.Header) bool { abort(); return true }), result: idempotency.Ran},
				"observer": {opt: idempotency.WithObserver(func(context.Context, idempotency.Outcome) { abort() }), result: idempotency.Ran},
			} {
				t.Run(fmt.Sprint(name, ", ", how, ", ", mode), func(t *testing.T) {
					t.Parallel()
					var store guard.Locker = memory.New()
					if c.store {
						store = abortingStore{store, abort}
					}
					var outcomes []idempotency.Outcome
					var reported []guard.Outcome
					g := lifeGuard(t, store, guard.WithNamespace("test"), guard.WithHook(c.hook),
						guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { reported = append(reported, o) }}))
					opts := append([]guardhttp.Option{idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { outcomes = append(outcomes, o) })}, more...)
					if name != "scope" {
						opts = append(opts, idempotency.WithGlobalKeys())
					}
					if c.opt != nil {
						opts = append(opts, c.opt)
					}
					if c.key == nil {
						c.key = guardhttp.IdempotencyKey
					}
					if c.h == nil {
						c.h = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }
					}
					idempotent, err := guardhttp.New(g, c.key, opts...)
					require.NoError(t, err)
					r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
					r.Header.Set("Idempotency-Key", "k")
					if c.body {
						r.Body = abortingBody{abort}
					}
					r, tracked := track(r)
					var over sync.WaitGroup
					over.Go(func() {
						defer func() { _ = recover() }()
						idempotent(c.h).ServeHTTP(httptest.NewRecorder(), r)
					})
					over.Wait()
					require.Len(t, outcomes, 1)
					require.Len(t, reported, 1)
					require.Contains(t, documented, outcomes[0].Result)
					require.Contains(t, documented, tracked().Result)
					require.Contains(t, documented, idempotency.Result(reported[0].Result))
					if c.result != "" {
						require.Equal(t, c.result, outcomes[0].Result)
					}
				})
			}
		}
	}
}
