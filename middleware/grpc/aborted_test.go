package guardgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// documented are all results that an Outcome can have.
var documented = []idempotency.Result{
	idempotency.Untouched, idempotency.Ran, idempotency.Replayed, idempotency.InFlight, idempotency.Done,
	idempotency.NotReplayable, idempotency.Mismatch, idempotency.KeyMissing, idempotency.KeyInvalid,
	idempotency.BodyInvalid, idempotency.Refused, idempotency.Unavailable, idempotency.Degraded, idempotency.Canceled,
	idempotency.TooManyKeys,
}

// aborts end a function of the user's without a result.
var aborts = map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit}

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
		key := func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { abort(); return "", nil }
		for mode, more := range map[string][]guardgrpc.Option{
			"": nil, "shadow": {idempotency.WithShadow()}, "fail open": {idempotency.WithFailOpen()}, "after the record": {idempotency.WithAnswerAfterRecord()},
		} {
			for name, c := range map[string]struct {
				opt    guardgrpc.Option
				key    guardgrpc.KeyFunc
				h      grpc.UnaryHandler
				store  bool
				hook   guard.Hook
				result idempotency.Result
			}{
				"KeyFunc": {key: key, result: idempotency.Refused},
				"scope":   {opt: guardgrpc.WithScope(key), result: idempotency.Refused},
				"print": {
					opt:    guardgrpc.WithFingerprint(func(context.Context, *grpc.UnaryServerInfo, any) ([]byte, error) { abort(); return nil, nil }),
					result: idempotency.Refused,
				},
				"store":    {store: true, result: idempotency.Unavailable},
				"hook":     {hook: guard.Hook{AcquireStart: func(ctx context.Context, _ guard.Event) context.Context { abort(); return ctx }}},
				"end hook": {hook: guard.Hook{RunEnd: func(context.Context, guard.RunEndEvent) { abort() }}, result: idempotency.Ran},
				"handler":  {h: func(context.Context, any) (any, error) { abort(); return nil, nil }, result: idempotency.Ran},
				"policy":   {opt: guardgrpc.WithPolicy(func(*status.Status) bool { abort(); return true }), result: idempotency.Ran},
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
					g := newGuard(t, store, guard.WithNamespace("test"), guard.WithHook(c.hook),
						guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { reported = append(reported, o) }}))
					opts := append([]guardgrpc.Option{idempotency.WithObserver(func(_ context.Context, o idempotency.Outcome) { outcomes = append(outcomes, o) })}, more...)
					if name != "scope" {
						opts = append(opts, idempotency.WithGlobalKeys())
					}
					if c.opt != nil {
						opts = append(opts, c.opt)
					}
					if c.key == nil {
						c.key = guardgrpc.IdempotencyKey
					}
					if c.h == nil {
						c.h = func(context.Context, any) (any, error) { return text("a", 1), nil }
					}
					once, err := guardgrpc.New(g, c.key, opts...)
					require.NoError(t, err)
					ctx, tracked := idempotency.Track(metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k")))
					var over sync.WaitGroup
					over.Go(func() {
						defer func() { _ = recover() }()
						_, _ = once(ctx, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: claim}, c.h)
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

// The error of a call that is refused, and that of its Outcome, say whether the handler ran.
func TestOutcome_errorsSayWhetherTheHandlerRan(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	type keyFunc = func(context.Context, *grpc.UnaryServerInfo, any) (string, error)
	returns := func(err error) keyFunc {
		return func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "", err }
	}
	fail := func(kind driver.StoreErrorKind) func(*outageStand, context.CancelFunc) {
		return func(s *outageStand, _ context.CancelFunc) {
			s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
				return driver.Answer{}, guardtest.Fail(kind)
			}
		}
	}
	for name, c := range map[string]struct {
		key    guardgrpc.KeyFunc
		opts   []guardgrpc.Option
		before func(s *outageStand, cancel context.CancelFunc)
		result idempotency.Result
	}{
		"no key":      {key: returns(idempotency.ErrNoKey), opts: []guardgrpc.Option{guardgrpc.WithMethods(claim)}, result: idempotency.KeyMissing},
		"invalid key": {key: returns(&idempotency.KeyError{From: "field x", Reason: "is odd"}), result: idempotency.KeyInvalid},
		"key fails":   {key: returns(broken), result: idempotency.Refused},
		"print fails": {opts: []guardgrpc.Option{guardgrpc.WithFingerprint(func(context.Context, *grpc.UnaryServerInfo, any) ([]byte, error) {
			return nil, broken
		})}, result: idempotency.BodyInvalid},
		"corrupt": {before: func(s *outageStand, _ context.CancelFunc) {
			s.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) { return guardtest.Done([]byte("none")) }
		}, result: idempotency.NotReplayable},
		"away":        {before: fail(driver.KindClosed), result: idempotency.Unavailable},
		"left before": {before: func(_ *outageStand, cancel context.CancelFunc) { cancel() }, result: idempotency.Canceled},
		"degraded":    {before: fail(driver.KindClosed), opts: []guardgrpc.Option{idempotency.WithFailOpen()}, result: idempotency.Degraded},
		"too long": {before: func(s *outageStand, _ context.CancelFunc) {
			s.handle = func(ctx context.Context, _ int64) (any, error) { <-ctx.Done(); return nil, ctx.Err() }
			s.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
		}, result: idempotency.Ran},
	} {
		t.Run(name, func(t *testing.T) {
			inOutageWith(t, c.key, func(t *testing.T, s *outageStand) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.before != nil {
					c.before(s, cancel)
				}
				call := s.call(ctx)
				require.Equal(t, c.result, call.outcome.Result)
				require.Error(t, call.outcome.Err)
				ran := s.runs.Load() > 0
				require.Equal(t, ran, guard.Ran(call.outcome.Err), "%v", call.outcome.Err)
				if call.err != nil {
					require.Equal(t, ran, guard.Ran(call.err), "%v", call.err)
				}
			}, c.opts...)
		})
	}
}
