package guardgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
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

// Each way for a run to end, in each mode: the result for the client, what is kept,
// and the retry.
func TestLife_eachEndOfARun(t *testing.T) {
	t.Parallel()
	for name, row := range lifeRows {
		for mode, kept := range map[idempotency.Mode]idempotency.Keep{
			idempotency.Replay: idempotency.KeepAnswer,
			idempotency.Reject: idempotency.KeepTombstone, idempotency.Exclusive: idempotency.KeepNothing,
		} {
			t.Run(fmt.Sprintf("%s, mode %d", name, mode), func(t *testing.T) {
				t.Parallel()
				if !row.kept {
					kept = idempotency.KeepNothing
				}
				row.test(t, memory.New(), mode, kept)
			})
		}
	}
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

// A handler whose client has gone can set metadata, and the retry gets it.
func TestLife_aHandlerOutlivesItsClient(t *testing.T) {
	t.Parallel()
	var runs atomic.Int64
	begun, failed := make(chan struct{}, 1), make(chan error, 2)
	h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		runs.Add(1)
		begun <- struct{}{}
		call := ctx.Value(callKey{}).(context.Context)
		pass(t, call.Done())
		failed <- errors.Join(grpc.SetHeader(ctx, metadata.Pairs("x-a", "1")), grpc.SendHeader(ctx, metadata.Pairs("x-b", "2")),
			grpc.SetTrailer(ctx, metadata.Pairs("x-c", "3")), ctx.Err())
		if grpc.SetHeader(ctx, metadata.Pairs("x-d", "4")) == nil {
			failed <- errors.New("set after it was sent")
		}
		return wrapperspb.String("done"), nil
	}
	front := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(context.WithValue(ctx, callKey{}, ctx), req)
	}
	s := setup{
		guard: newGuard(t, memory.New()), tcp: true, front: []grpc.UnaryServerInterceptor{front},
		opts: []guardgrpc.Option{idempotency.WithWait(soon)},
	}.serve(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := s.start(ctx, "k")
	receive(t, begun, "a run")
	cancel()
	require.Equal(t, codes.Canceled, status.Code(receive(t, first, "end of a call").err))
	a := s.call(t.Context(), "k", "a") // waits for the first one, or comes after it
	requireReplay(t, a, "done")
	require.NoError(t, receive(t, failed, "end of a handler"))
	require.Empty(t, failed)
	require.Equal(t, []string{"1"}, a.header["x-a"])
	require.Equal(t, []string{"2"}, a.header["x-b"])
	require.Empty(t, a.header["x-d"])
	require.Equal(t, []string{"3"}, a.trailer["x-c"])
	require.EqualValues(t, 1, runs.Load())
}

type callKey struct{}

// While the first call runs, others are refused or wait.
func TestLife_whileTheFirstRuns(t *testing.T) {
	t.Parallel()
	begun, gate := make(chan struct{}, 1), make(chan struct{})
	h, runs := counted(func(context.Context) { begun <- struct{}{}; pass(t, gate) })
	g := newGuard(t, memory.New())
	s := setup{guard: g}.serve(t, h)
	patient := setup{guard: g, opts: []guardgrpc.Option{idempotency.WithWait(soon), idempotency.WithMaxWaiters(1, 1)}}.serve(t, h)
	first := s.start(t.Context(), "k")
	receive(t, begun, "a run")

	a := s.call(t.Context(), "k", "a")
	require.Equal(t, codes.Aborted, status.Code(a.err))
	require.Equal(t, idempotency.InFlight, guardgrpc.ResultOf(a.err))
	require.Equal(t, []string{"1000"}, a.trailer["grpc-retry-pushback-ms"])
	require.Equal(t, time.Second, retryInfo(t, a.err).GetRetryDelay().AsDuration())
	require.Equal(t, codes.Aborted, codes.Code(s.log.next(t).Status))

	waiting := make(chan answer, 4)
	for range 4 {
		go func() { waiting <- patient.call(t.Context(), "k", "a") }()
	}
	for range 3 { // one waits, and the others must not
		require.Equal(t, idempotency.InFlight, guardgrpc.ResultOf(receive(t, waiting, "refusal").err))
	}
	close(gate)
	requireRan(t, receive(t, first, "reply"), "a by run 1")
	requireReplay(t, receive(t, waiting, "reply"), "a by run 1")
	require.EqualValues(t, 1, runs.Load())
}

// A key, or a scope, that returns ErrUnguarded leaves the call out.
func TestLife_anUnguardedCallIsPassedOn(t *testing.T) {
	t.Parallel()
	out := func(context.Context, *grpc.UnaryServerInfo, any) (string, error) {
		return "", fmt.Errorf("internal: %w", idempotency.ErrUnguarded)
	}
	for name, set := range map[string]setup{
		"by the key":   {key: out, opts: []guardgrpc.Option{guardgrpc.WithMethods(claim)}},
		"by the scope": {noScope: true, opts: []guardgrpc.Option{guardgrpc.WithScope(out)}},
		"by a part":    {key: guardgrpc.Join(guardgrpc.IdempotencyKey, out)},
	} {
		h, runs := counted(nil)
		s := set.serve(t, h)
		for range 2 {
			require.NoError(t, s.call(t.Context(), "k", "a").err, name)
			require.Equal(t, idempotency.Untouched, s.log.next(t).Result)
		}
		require.EqualValues(t, 2, runs.Load())
	}
}

// A scope has no more records than it may, and calls with further keys do not run.
func TestLife_aScopeLeavesRoomInTheStore(t *testing.T) {
	t.Parallel()
	h, runs := counted(nil)
	s := setup{opts: []guardgrpc.Option{idempotency.WithMaxScopeRecords(2)}}.serve(t, h)
	for key := range 2 {
		require.NoError(t, s.call(t.Context(), fmt.Sprint(key), "a").err)
	}
	a := s.call(t.Context(), "third", "a")
	require.Equal(t, codes.ResourceExhausted, status.Code(a.err))
	require.Equal(t, idempotency.TooManyKeys, guardgrpc.ResultOf(a.err))
	require.Positive(t, retryInfo(t, a.err).GetRetryDelay().AsDuration())
	require.True(t, s.call(t.Context(), "0", "a").replayed())
	require.EqualValues(t, 2, runs.Load())
}

func retryInfo(t testing.TB, err error) *errdetails.RetryInfo {
	t.Helper()
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info
		}
	}
	require.Fail(t, "there is no RetryInfo")
	return nil
}

// A call that waits ends with its client, and its handler never runs.
func TestLife_aWaiterLeaves(t *testing.T) {
	t.Parallel()
	begun, gate, waits := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	h, runs := counted(func(context.Context) { begun <- struct{}{}; pass(t, gate) })
	hook := guard.Hook{Wait: func(context.Context, guard.WaitEvent) { waits <- struct{}{} }}
	s := setup{guard: newGuard(t, nil, guard.WithHook(hook)), opts: []guardgrpc.Option{idempotency.WithWait(soon)}}.serve(t, h)
	first := s.start(t.Context(), "k")
	receive(t, begun, "a run")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	second := s.start(ctx, "k")
	receive(t, waits, "a waiter")
	cancel()
	require.Equal(t, codes.Canceled, status.Code(receive(t, second, "end of a call").err))
	o := s.log.next(t)
	require.Equal(t, idempotency.Canceled, o.Result)
	require.Equal(t, codes.Canceled, codes.Code(o.Status))
	close(gate)
	requireRan(t, receive(t, first, "reply"), "a by run 1")
	require.EqualValues(t, 1, runs.Load())
}

// pass waits for a gate, or for the end of the test.
func pass(t testing.TB, gate <-chan struct{}) {
	select {
	case <-gate:
	case <-t.Context().Done():
	}
}
