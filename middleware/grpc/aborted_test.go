package guardgrpc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

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
