package guardgrpc_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardgrpc "github.com/seed-1795987d/onerun/middleware/grpc"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// unknown returns a message of a type that no program has linked in.
func unknown(t testing.TB) proto.Message {
	t.Helper()
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("unknown.proto"), Syntax: proto.String("proto3"), Package: proto.String("unknown"),
		MessageType: []*descriptorpb.DescriptorProto{{Name: proto.String("Reply")}},
	}, protoregistry.GlobalFiles)
	require.NoError(t, err)
	return dynamicpb.NewMessage(file.Messages().Get(0))
}

// A reply of a type that the program does not have cannot be replayed, and does not run again.
func TestRecord_ofAnUnknownType(t *testing.T) {
	t.Parallel()
	message := unknown(t)
	s := setup{}.serve(t, func(context.Context, *wrapperspb.StringValue) (any, error) { return message, nil })
	requireRan(t, s.call(t.Context(), "k", "a"), "")
	require.Equal(t, idempotency.KeepAnswer, s.log.next(t).Kept)
	a := s.call(t.Context(), "k", "a")
	require.Equal(t, codes.AlreadyExists, status.Code(a.err))
	require.Equal(t, idempotency.NotReplayable, guardgrpc.ResultOf(a.err))
	o := s.log.next(t)
	require.Equal(t, idempotency.NotReplayable, o.Result)
	require.ErrorAs(t, o.Err, new(*idempotency.RecordError))
	require.ErrorContains(t, o.Err, "this program does not have the type of its message, type.googleapis.com/unknown.Reply")
	require.Equal(t, idempotency.Mismatch, guardgrpc.ResultOf(s.call(t.Context(), "k", "another").err), "whatever the reply is")
}

// A handler that returns no message has run: a retry does not run it again.
func TestRecord_ofNoMessage(t *testing.T) {
	t.Parallel()
	s := setup{}.serve(t, func(context.Context, *wrapperspb.StringValue) (any, error) { return "text", nil })
	require.Equal(t, codes.Internal, status.Code(s.call(t.Context(), "k", "a").err), "gRPC cannot send it")
	require.Equal(t, idempotency.KeepTombstone, s.log.next(t).Kept)
	require.Equal(t, idempotency.NotReplayable, guardgrpc.ResultOf(s.call(t.Context(), "k", "a").err))
}

// What is kept can be encrypted, and keys can be rotated.
func TestRecord_encrypted(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	g := newGuard(t, single.New(rdb))
	old := idempotency.EncryptionKey{ID: "old", Secret: make([]byte, 16)}
	fresh := idempotency.EncryptionKey{ID: "fresh", Secret: []byte("0123456789abcdef")}
	h, _ := counted(nil)
	s := setup{guard: g, opts: []guardgrpc.Option{idempotency.WithEncryption(old)}}.serve(t, h)
	requireRan(t, s.call(t.Context(), "k", "plaintext"), "plaintext by run 1")
	for _, name := range rdb.Keys(t.Context(), "*grpc:*").Val() {
		require.NotContains(t, rdb.Get(t.Context(), name).Val(), "plaintext")
	}
	rotated := setup{guard: g, opts: []guardgrpc.Option{idempotency.WithEncryption(fresh, old)}}.serve(t, h)
	requireReplay(t, rotated.call(t.Context(), "k", "plaintext"), "plaintext by run 1")
	unknown := setup{guard: g, opts: []guardgrpc.Option{idempotency.WithEncryption(fresh)}}.serve(t, h)
	require.Equal(t, idempotency.NotReplayable, guardgrpc.ResultOf(unknown.call(t.Context(), "k", "plaintext").err))
}

// In shadow mode, every call runs, and the outcomes say what would have happened.
func TestShadow_changesNothing(t *testing.T) {
	t.Parallel()
	h, runs := counted(nil)
	s := setup{opts: []guardgrpc.Option{idempotency.WithShadow(), guardgrpc.WithMethods(claim)}}.serve(t, h)
	for run, want := range []struct {
		key, value string
		result     idempotency.Result
	}{
		{"k", "a", idempotency.Ran}, {"k", "a", idempotency.Replayed}, {"k", "b", idempotency.Mismatch}, {"", "a", idempotency.KeyMissing},
	} {
		requireRan(t, s.call(t.Context(), want.key, want.value), text(want.value, int64(run+1)).GetValue())
		o := s.log.next(t)
		require.Equal(t, want.result, o.Result)
		require.True(t, o.Shadow)
		require.Equal(t, run == 0, o.Kept == idempotency.KeepAnswer)
	}
	require.EqualValues(t, 4, runs.Load())

	down := setup{guard: newGuard(t, away()), opts: []guardgrpc.Option{idempotency.WithShadow()}}.serve(t, h)
	requireRan(t, down.call(t.Context(), "k", "a"), "a by run 5")
	require.Equal(t, idempotency.Unavailable, down.log.next(t).Result)
}

// With WithFailOpen, calls run without a lease if the store is away.
func TestFailOpen_runsWithoutALease(t *testing.T) {
	t.Parallel()
	h, runs := counted(func(ctx context.Context) {
		if idempotency.Key(ctx) != "k" || guard.Fence(ctx) != 0 {
			panic("the key is missing, or there is a lease")
		}
	})
	s := setup{guard: newGuard(t, away()), opts: []guardgrpc.Option{idempotency.WithFailOpen()}}.serve(t, h)
	for run := range int64(3) {
		requireRan(t, s.call(t.Context(), "k", "a"), text("a", run+1).GetValue())
		o := s.log.next(t)
		require.Equal(t, idempotency.Degraded, o.Result)
		require.ErrorIs(t, o.Err, guard.ErrStore)
	}
	require.EqualValues(t, 3, runs.Load())
}

// Hooks and observers are notified once of each call, and Track has the same Outcome.
func TestObserver_isNotifiedOnce(t *testing.T) {
	t.Parallel()
	reported, tracked := make(chan guard.Outcome, 4), make(chan idempotency.Outcome, 4)
	hook := guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { reported <- o }}
	h, _ := counted(nil)
	broken := errors.New("broken")
	noScope := func(ctx context.Context, _ *grpc.UnaryServerInfo, _ any) (string, error) {
		if metadata.ValueFromIncomingContext(ctx, "tenant")[0] == "none" {
			return "", broken
		}
		return "t", nil
	}
	front := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, outcome := idempotency.Track(ctx)
		defer func() { tracked <- outcome() }()
		return next(ctx, req)
	}
	s := setup{guard: newGuard(t, memory.New(), guard.WithHook(hook)), noScope: true, front: []grpc.UnaryServerInterceptor{front},
		opts: []guardgrpc.Option{guardgrpc.WithScope(noScope), idempotency.WithLease(guard.WithName("claims")),
			idempotency.WithObserver(func(context.Context, idempotency.Outcome) { panic("of an observer") })}}.serve(t, h)
	for _, c := range []struct {
		tenant string
		result idempotency.Result
	}{{"t", idempotency.Ran}, {"t", idempotency.Replayed}, {"none", idempotency.Refused}} {
		s.invoke(metadata.AppendToOutgoingContext(t.Context(), "tenant", c.tenant, "idempotency-key", "k"), claim, "a")
		o, r, own := s.log.next(t), receive(t, reported, "report"), receive(t, tracked, "outcome")
		require.Equal(t, c.result, o.Result)
		require.Equal(t, o, own)
		require.Equal(t, "grpc", r.Adapter)
		require.Equal(t, string(c.result), r.Result)
		require.Equal(t, "claims", r.Name)
		require.Equal(t, o.Fence, r.Fence)
		require.Equal(t, c.result == idempotency.Refused, errors.Is(r.Refused, broken))
	}
	require.Empty(t, reported)
}
