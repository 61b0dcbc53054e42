package guardgrpc_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// A losing store loses a lease if a test says so, at the next renewal.
type losing struct {
	guard.Locker
	lose atomic.Bool
}

func (l *losing) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	if l.lose.Load() {
		_, err := l.Release(ctx, c, driver.After{})
		return false, err
	}
	return l.Locker.Renew(ctx, c)
}

// A lifeRun is the first run of a key, while a test disturbs it.
type lifeRun struct {
	store  *losing
	guard  *guard.Guard
	leave  context.CancelFunc // ends the first call
	call   context.Context    // of the first call, on the server
	closed chan error
}

func lose(r *lifeRun) { r.store.lose.Store(true) }

func leave(r *lifeRun) {
	r.leave()
	<-r.call.Done()
}

func closeGuard(r *lifeRun) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	r.closed <- r.guard.Close(ended)
}

// A lifeRow is one way for a run to end.
type lifeRow struct {
	disturb func(*lifeRun)                  // while the handler runs; nil is nothing
	ends    bool                            // the handler waits for the end of its context
	end     func(ctx context.Context) error // of the handler; nil is a reply
	opts    []guardgrpc.Option
	ttl     time.Duration

	code    codes.Code
	refusal idempotency.Result // why the first call is refused
	kept    bool
	aborted bool
	err     error      // of the Outcome
	seen    codes.Code // of the Outcome, if the client does not see it
	cause   error      // of the handler's context
	retry   codes.Code
}

func ctxErr(ctx context.Context) error { return ctx.Err() }

func failed(context.Context) error { return status.Error(codes.FailedPrecondition, "no") }

var lifeRows = map[string]lifeRow{
	"reply":  {kept: true},
	"error":  {end: failed, code: codes.FailedPrecondition, kept: true, retry: codes.FailedPrecondition},
	"panic":  {end: func(context.Context) error { panic("boom") }, code: codes.Internal, aborted: true},
	"Goexit": {end: func(context.Context) error { runtime.Goexit(); return nil }, code: codes.Canceled, aborted: true},

	"lost, and the context's error": {
		disturb: lose, ends: true, end: ctxErr, ttl: time.Second, cause: guard.ErrLost,
		code: codes.Unavailable, refusal: "given_up", err: guard.ErrLost,
	},
	"lost, and the cause": {
		disturb: lose, ends: true, end: context.Cause, ttl: time.Second, cause: guard.ErrLost,
		code: codes.Unavailable, refusal: "given_up", err: guard.ErrLost,
	},
	"lost, and a reply": {disturb: lose, ends: true, ttl: time.Second, cause: guard.ErrLost, err: guard.ErrLost},
	"lost, and an error": {
		disturb: lose, ends: true, end: failed, ttl: time.Second, cause: guard.ErrLost,
		code: codes.FailedPrecondition, err: guard.ErrLost, retry: codes.FailedPrecondition,
	},

	"closed, and the context's error": {
		disturb: closeGuard, ends: true, end: ctxErr, cause: guard.ErrClosed,
		code: codes.Unavailable, refusal: "given_up", err: guard.ErrClosed, retry: codes.Unavailable,
	},

	"too long, and the context's error": {
		ends: true, end: ctxErr, opts: []guardgrpc.Option{idempotency.WithMaxHold(50 * time.Millisecond)},
		cause: context.DeadlineExceeded, code: codes.Unavailable, refusal: "given_up",
	},
	"too long, and a reply": {
		ends: true, opts: []guardgrpc.Option{idempotency.WithMaxHold(50 * time.Millisecond)},
		cause: context.DeadlineExceeded, kept: true,
	},

	"too long, and an error": {
		ends: true, end: failed, opts: []guardgrpc.Option{idempotency.WithMaxHold(50 * time.Millisecond)},
		cause: context.DeadlineExceeded, code: codes.FailedPrecondition, retry: codes.FailedPrecondition,
	},

	"the client leaves, and a reply":  {disturb: leave, code: codes.Canceled, kept: true},
	"the client leaves, and an error": {disturb: leave, end: failed, code: codes.Canceled, kept: true, retry: codes.FailedPrecondition},
	"the client cancels, and the context's error": {
		disturb: leave, ends: true, end: ctxErr, cause: context.Canceled,
		opts: []guardgrpc.Option{idempotency.WithClientCancel()}, code: codes.Canceled, seen: codes.Canceled,
	},
	"the client cancels, and a reply": {
		disturb: leave, ends: true, cause: context.Canceled,
		opts: []guardgrpc.Option{idempotency.WithClientCancel()}, code: codes.Canceled,
	},
}

func (row lifeRow) test(t *testing.T, store guard.Locker, mode idempotency.Mode, kept idempotency.Keep) {
	run := &lifeRun{store: &losing{Locker: store}, closed: make(chan error, 1)}
	if row.ttl == 0 {
		row.ttl = time.Minute
	}
	run.guard = newGuard(t, run.store, guard.WithTTL(row.ttl))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	run.leave = leave
	var runs atomic.Int64
	causes := make(chan error, 1)
	h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		reply := text("a", runs.Add(1))
		if reply.GetValue() == "a by run 1" {
			if row.disturb != nil {
				row.disturb(run)
			}
			if row.ends {
				<-ctx.Done()
				causes <- context.Cause(ctx)
			}
		} else if row.aborted || row.code == codes.Unavailable || row.code == codes.Canceled && !row.kept {
			return reply, nil
		}
		if row.end != nil {
			return nil, row.end(ctx)
		}
		return reply, nil
	}
	front := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (reply any, err error) {
		if run.call == nil {
			run.call = ctx
		}
		defer func() {
			if value := recover(); value != nil {
				require.Equal(t, "boom", value)
				err = status.Error(codes.Internal, "recovered")
			}
		}()
		return next(ctx, req)
	}
	s := setup{guard: run.guard, opts: append(row.opts, idempotency.WithMode(mode)), front: []grpc.UnaryServerInterceptor{front}}.serve(t, h)
	key := t.Name()
	answers := s.start(ctx, key)
	o := s.log.next(t)
	if row.aborted && row.code == codes.Canceled {
		leave() // nobody answers after Goexit
	}
	first := receive(t, answers, "end of a call")
	require.Equal(t, row.code, status.Code(first.err), "%v", first.err)
	require.Equal(t, row.refusal, guardgrpc.ResultOf(first.err))
	if row.cause != nil {
		require.ErrorIs(t, receive(t, causes, "end of a context"), row.cause)
	}
	require.Equal(t, idempotency.Ran, o.Result)
	require.Equal(t, kept, o.Kept)
	require.Equal(t, row.aborted, o.Aborted)
	require.ErrorIs(t, o.Err, row.err)
	if row.seen != codes.OK {
		require.Equal(t, row.seen, codes.Code(o.Status))
	}
	if row.code == codes.OK && mode != idempotency.Exclusive && row.err == nil {
		require.Equal(t, "a by run 1", first.value)
	}

	run.store.lose.Store(false)
	again := s.call(t.Context(), key, "a")
	switch o = s.log.next(t); kept {
	case idempotency.KeepAnswer:
		require.Equal(t, idempotency.Replayed, o.Result)
		require.Equal(t, row.retry, status.Code(again.err))
		require.True(t, again.replayed())
	case idempotency.KeepTombstone:
		require.Equal(t, codes.AlreadyExists, status.Code(again.err))
		require.Equal(t, idempotency.Done, guardgrpc.ResultOf(again.err))
	case idempotency.KeepNothing:
		require.Equal(t, row.retry, status.Code(again.err), "%v", again.err)
		if len(run.closed) > 0 {
			require.Equal(t, idempotency.Unavailable, o.Result)
			require.ErrorIs(t, <-run.closed, context.Canceled)
			return
		}
		require.Equal(t, idempotency.Ran, o.Result)
		require.EqualValues(t, 2, runs.Load())
	}
}
