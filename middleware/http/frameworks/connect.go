package frameworks

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/seed-1795987d/onerun/guard"
)

// Connect makes an interceptor for unary procedures of a Connect server. A call with an
// Idempotency-Key that has succeeded in the window is refused with CodeAlreadyExists, and one whose
// key is busy with CodeAborted. It serves clients of all three protocols, but replays no answer:
// for clients of the Connect protocol, guardhttp does. If tenants choose keys, put yours into the
// key, from what your authentication has left in ctx.
func Connect(g *guard.Guard, window time.Duration) connect.UnaryInterceptorFunc {
	return func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (answer connect.AnyResponse, err error) {
			key := r.Header().Get("Idempotency-Key")
			if key == "" {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("Idempotency-Key is missing"))
			}
			err = g.Do(ctx, r.Spec().Procedure+":"+key, func(ctx context.Context) error {
				answer, err = next(ctx, r)
				return err
			}, guard.WithOnce(window))
			switch {
			case err == nil, errors.Is(err, guard.ErrMarker):
				return answer, nil
			case guard.Ran(err):
				return nil, err
			case errors.Is(err, guard.ErrDone):
				return nil, connect.NewError(connect.CodeAlreadyExists, errors.New("the call has succeeded before"))
			case errors.Is(err, guard.ErrBusy):
				return nil, connect.NewError(connect.CodeAborted, errors.New("the call is being handled"))
			case ctx.Err() != nil:
				return nil, ctx.Err()
			default: // the store is unavailable; the cause is not for clients
				return nil, connect.NewError(connect.CodeUnavailable, errors.New("try again"))
			}
		}
	}
}
