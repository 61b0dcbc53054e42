package guardgrpc_test

import (
	"context"
	"errors"
	"fmt"
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
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

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

// pass waits for a gate, or for the end of the test.
func pass(t testing.TB, gate <-chan struct{}) {
	select {
	case <-gate:
	case <-t.Context().Done():
	}
}
