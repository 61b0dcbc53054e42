package guardgrpc_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

func TestReplay_givesTheFirstReplyAgain(t *testing.T) {
	t.Parallel()
	for _, tcp := range []bool{false, true} {
		t.Run(fmt.Sprint("tcp=", tcp), func(t *testing.T) {
			h, runs := counted(func(ctx context.Context) {
				if idempotency.Key(ctx) == "" || guard.Fence(ctx) == 0 {
					panic("the handler does not find its key and its lease")
				}
			})
			s := setup{guard: newGuard(t, memory.New()), tcp: tcp}.serve(t, h)
			key := t.Name()
			requireRan(t, s.call(t.Context(), key, "a"), "a by run 1")
			o := s.log.next(t)
			require.Positive(t, o.Fence)
			require.Positive(t, o.Duration)
			o.Fence, o.Duration = 0, 0
			require.Equal(t, idempotency.Outcome{Result: idempotency.Ran, Name: claim, Route: claim, Kept: idempotency.KeepAnswer}, o)
			for range 2 {
				requireReplay(t, s.call(t.Context(), key, "a"), "a by run 1")
				require.Equal(t, idempotency.Replayed, s.log.next(t).Result)
			}
			require.EqualValues(t, 1, runs.Load())
			// A key belongs to its tenant and its method.
			ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "other", "idempotency-key", key)
			requireRan(t, s.invoke(ctx, claim, "a"), "a by run 2")
			ctx = metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme", "idempotency-key", key)
			requireRan(t, s.invoke(ctx, other, "a"), "a by run 3")
		})
	}
}

// Metadata of the application that has secrets is not kept, in header and trailer. What was kept
// before the option is not replayed.
func TestReplay_withoutMetadata(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	g := newGuard(t, single.New(rdb))
	h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		require.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("x-acme-secret", "secret", "x-acme-bin", "secret", "x-auth-token", "secret", "x-acme", "yes")))
		require.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("x-acme-secret", "secret", "x-after", "yes")))
		return wrapperspb.String("a"), nil
	}
	with := setup{guard: g, opts: []guardgrpc.Option{guardgrpc.WithoutMetadata("X-Acme-Secret"), guardgrpc.WithoutMetadata("x-acme-bin")}}.serve(t, h)
	first := with.call(t.Context(), "k", "a")
	requireRan(t, first, "a")
	require.Equal(t, []string{"secret"}, first.header["x-acme-secret"], "the first client gets them")
	require.Equal(t, []string{"secret"}, first.trailer["x-acme-secret"])
	for _, name := range rdb.Keys(t.Context(), "*grpc:*").Val() {
		require.NotContains(t, rdb.Get(t.Context(), name).Val(), "secret")
	}
	requireRan(t, setup{guard: g}.serve(t, h).call(t.Context(), "before", "a"), "a")
	for _, key := range []string{"k", "before"} {
		again := with.call(t.Context(), key, "a")
		requireReplay(t, again, "a")
		require.Equal(t, []string{"yes"}, again.header["x-acme"])
		require.Equal(t, []string{"yes"}, again.trailer["x-after"])
		require.NotContains(t, fmt.Sprint(again.header, again.trailer), "secret")
	}
}

// What the handler sets of the metadata comes again, but no secrets.
func TestReplay_givesMetadataAgain(t *testing.T) {
	t.Parallel()
	h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
		require.NoError(t, grpc.SetHeader(ctx, metadata.Pairs("x-one", "1", "x-one", "2", "set-cookie", "secret", "x-bytes-bin", "\x00\xff")))
		require.NoError(t, grpc.SendHeader(ctx, metadata.Pairs("x-two", "3", "authorization", "secret")))
		require.Error(t, grpc.SetHeader(ctx, metadata.Pairs("x-late", "4")), "the header was sent")
		require.NoError(t, grpc.SetTrailer(ctx, metadata.Pairs("x-three", "5", "www-authenticate", "secret")))
		method, _ := grpc.Method(ctx)
		require.Equal(t, claim, method)
		return wrapperspb.String("a"), nil
	}
	front := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := grpc.SetHeader(ctx, metadata.Pairs("x-front", "f")); err != nil {
			return nil, err
		}
		return next(ctx, req)
	}
	s := setup{front: []grpc.UnaryServerInterceptor{front}}.serve(t, h)
	first := s.call(t.Context(), "k", "a")
	requireRan(t, first, "a")
	require.Equal(t, []string{"secret"}, first.header["set-cookie"])
	again := s.call(t.Context(), "k", "a")
	requireReplay(t, again, "a")
	delete(again.header, "idempotency-replayed")
	for _, md := range []metadata.MD{first.header, first.trailer} {
		for _, secret := range []string{"set-cookie", "authorization", "www-authenticate"} {
			delete(md, secret)
		}
	}
	require.Equal(t, first.header, again.header)
	require.Equal(t, []string{"1", "2"}, again.header["x-one"])
	require.Equal(t, []string{"\x00\xff"}, again.header["x-bytes-bin"])
	require.Equal(t, []string{"f"}, again.header["x-front"])
	require.Equal(t, first.trailer, again.trailer)
	require.Equal(t, []string{"5"}, again.trailer["x-three"])
}

// The policy's table: final errors come again, with their details, and others run again.
func TestReplay_ofErrors(t *testing.T) {
	t.Parallel()
	final := map[codes.Code]bool{codes.InvalidArgument: true, codes.NotFound: true, codes.AlreadyExists: true, codes.FailedPrecondition: true,
		codes.OutOfRange: true}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			var runs atomic.Int64
			h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
				runs.Add(1)
				_ = grpc.SetTrailer(ctx, metadata.Pairs("x-run", fmt.Sprint(runs.Load())))
				s, err := status.New(code, "no").WithDetails(&errdetails.ErrorInfo{Reason: "R", Domain: "d"}, wrapperspb.String("more"))
				require.NoError(t, err)
				return nil, s.Err()
			}
			s := setup{}.serve(t, h)
			first := s.call(t.Context(), "k", "a")
			require.Equal(t, code, status.Code(first.err))
			require.Empty(t, guardgrpc.ResultOf(first.err), "it is the handler's own")
			again := s.call(t.Context(), "k", "a")
			require.Equal(t, final[code], again.replayed())
			o := s.log.next(t)
			require.Equal(t, code, codes.Code(o.Status))
			require.NoError(t, o.Err)
			require.True(t, proto.Equal(status.Convert(first.err).Proto(), status.Convert(again.err).Proto()))
			if final[code] {
				require.EqualValues(t, 1, runs.Load())
				require.Equal(t, idempotency.KeepAnswer, o.Kept)
				require.Equal(t, []string{"1"}, again.trailer["x-run"])
				return
			}
			require.EqualValues(t, 2, runs.Load())
			require.Equal(t, idempotency.KeepNothing, o.Kept)
		})
	}
}

// An error that is no status is UNKNOWN for the client, and not kept. WithPolicy and SetKeep
// choose.
func TestReplay_ofWhatIsChosen(t *testing.T) {
	t.Parallel()
	plain := fmt.Errorf("wrapped: %w", context.DeadlineExceeded)
	everything := guardgrpc.WithPolicy(func(*status.Status) bool { return true })
	nothing := guardgrpc.WithPolicy(func(s *status.Status) bool { return s.Code() != codes.OK })
	for name, c := range map[string]struct {
		opts   []guardgrpc.Option
		keep   *idempotency.Keep
		err    error
		code   codes.Code
		kept   idempotency.Keep
		second idempotency.Result
	}{
		"a plain error":       {nil, nil, plain, codes.DeadlineExceeded, idempotency.KeepNothing, idempotency.Ran},
		"a plain error, kept": {[]guardgrpc.Option{everything}, nil, plain, codes.DeadlineExceeded, idempotency.KeepAnswer, idempotency.Replayed},
		"no reply":            {[]guardgrpc.Option{nothing}, nil, nil, codes.OK, idempotency.KeepNothing, idempotency.Ran},
		"SetKeep nothing":     {nil, keep(idempotency.KeepNothing), nil, codes.OK, idempotency.KeepNothing, idempotency.Ran},
		"SetKeep answer":      {[]guardgrpc.Option{nothing}, keep(idempotency.KeepAnswer), nil, codes.OK, idempotency.KeepAnswer, idempotency.Replayed},
		"SetKeep tombstone":   {nil, keep(idempotency.KeepTombstone), nil, codes.OK, idempotency.KeepTombstone, idempotency.NotReplayable},
		"too large":           {[]guardgrpc.Option{idempotency.WithMaxAnswer(2)}, nil, nil, codes.OK, idempotency.KeepTombstone, idempotency.NotReplayable},
		"too large, rerun": {[]guardgrpc.Option{idempotency.WithMaxAnswer(2), idempotency.WithRerun()}, nil, nil, codes.OK,
			idempotency.KeepNothing, idempotency.Ran},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := func(ctx context.Context, _ *wrapperspb.StringValue) (any, error) {
				if c.keep != nil {
					require.True(t, idempotency.SetKeep(ctx, *c.keep))
				}
				return wrapperspb.String("reply"), c.err
			}
			s := setup{opts: c.opts}.serve(t, h)
			require.Equal(t, c.code, status.Code(s.call(t.Context(), "k", "a").err))
			require.Equal(t, c.kept, s.log.next(t).Kept)
			s.call(t.Context(), "k", "a")
			require.Equal(t, c.second, s.log.next(t).Result)
		})
	}
	require.False(t, idempotency.SetKeep(t.Context(), idempotency.KeepNothing))
	require.Empty(t, idempotency.Key(t.Context()))
}

func keep(k idempotency.Keep) *idempotency.Keep { return &k }
