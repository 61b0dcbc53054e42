package guardgrpc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
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

// outageTTL is that of the leases in virtual time.
const outageTTL = 30 * time.Second

// An outageStand is a handler behind the interceptor over a store whose answers a test specifies,
// in virtual time.
type outageStand struct {
	guardtest.Scripted
	once grpc.UnaryServerInterceptor
	runs atomic.Int64
	// handle is the handler, or nil for one that replies with the number of its run.
	handle func(ctx context.Context, run int64) (any, error)
}

// inOutage runs f in a bubble. The bubble fails if f leaves a goroutine behind.
func inOutage(t *testing.T, f func(t *testing.T, s *outageStand), opts ...guardgrpc.Option) {
	t.Helper()
	inOutageWith(t, nil, f, opts...)
}

// inOutageWith is inOutage with a KeyFunc. nil is IdempotencyKey.
func inOutageWith(t *testing.T, key guardgrpc.KeyFunc, f func(t *testing.T, s *outageStand), opts ...guardgrpc.Option) {
	t.Helper()
	if key == nil {
		key = guardgrpc.IdempotencyKey
	}
	synctest.Test(t, func(t *testing.T) {
		s := &outageStand{Scripted: guardtest.Scripted{Inner: memory.New()}}
		g, err := guard.New(s, guard.WithTTL(outageTTL), guard.WithNamespace("test"))
		require.NoError(t, err)
		defer func() { require.NoError(t, g.Close(context.Background())) }()
		s.once, err = guardgrpc.New(g, key, append(opts, idempotency.WithGlobalKeys())...)
		require.NoError(t, err)
		f(t, s)
	})
}

// A fakeStream is the transport of a call.
type fakeStream struct{ header, trailer, sent metadata.MD }

func (*fakeStream) Method() string { return claim }

func (f *fakeStream) SetHeader(md metadata.MD) error {
	f.header = metadata.Join(f.header, md)
	return nil
}

func (f *fakeStream) SendHeader(md metadata.MD) error {
	f.sent = metadata.Join(f.header, md)
	return nil
}

func (f *fakeStream) SetTrailer(md metadata.MD) error {
	f.trailer = metadata.Join(f.trailer, md)
	return nil
}

// A fakeCall is the end of a call.
type fakeCall struct {
	fakeStream
	reply   any
	err     error
	outcome idempotency.Outcome
	aborted bool // the handler has panicked, or has ended its goroutine
}

// call makes a call, whose goroutine may end.
func (s *outageStand) call(ctx context.Context) *fakeCall {
	c := new(fakeCall)
	ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("idempotency-key", "k"))
	ctx = grpc.NewContextWithServerTransportStream(ctx, &c.fakeStream)
	ctx, outcome := idempotency.Track(ctx)
	var over sync.WaitGroup
	over.Go(func() {
		returned := false
		defer func() {
			_ = recover()
			c.aborted, c.outcome = !returned, outcome()
		}()
		c.reply, c.err = s.once(ctx, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: claim}, func(ctx context.Context, _ any) (any, error) {
			run := s.runs.Add(1)
			if s.handle != nil {
				return s.handle(ctx, run)
			}
			return text("a", run), nil
		})
		returned = true
	})
	over.Wait()
	return c
}

// endOutages are what can happen to the store and to the lease at the end of a run.
var endOutages = map[string]struct {
	begin func(s *outageStand, away *atomic.Bool, ctx context.Context)
	lasts time.Duration
	err   error // of the Outcome, if something was to be kept
}{
	"none":                          {begin: func(*outageStand, *atomic.Bool, context.Context) {}},
	"away for less than the lease":  {begin: func(_ *outageStand, away *atomic.Bool, _ context.Context) { away.Store(true) }, lasts: outageTTL / 3},
	"away for longer than it lasts": {begin: func(_ *outageStand, away *atomic.Bool, _ context.Context) { away.Store(true) }, lasts: 3 * outageTTL, err: guard.ErrMarker},
	"lost": {begin: func(s *outageStand, _ *atomic.Bool, ctx context.Context) {
		for _, call := range s.Calls() {
			_, _ = s.Inner.Release(context.Background(), call.Claim, driver.After{})
		}
		<-ctx.Done()
	}, err: guard.ErrLost},
}

// endExits are ways for a handler to end.
var endExits = map[string]struct {
	end  func(run int64) (any, error)
	code codes.Code
	kept bool
}{
	"a reply":                  {end: func(run int64) (any, error) { return text("a", run), nil }, kept: true},
	"no protobuf message":      {end: func(run int64) (any, error) { return run, nil }, kept: true},
	"a final error":            {end: func(run int64) (any, error) { return nil, status.Errorf(codes.NotFound, "run %d", run) }, code: codes.NotFound, kept: true},
	"a failure":                {end: func(run int64) (any, error) { return nil, status.Errorf(codes.Internal, "run %d", run) }, code: codes.Internal},
	"a panic":                  {end: func(int64) (any, error) { panic("boom") }},
	"the end of its goroutine": {end: func(int64) (any, error) { runtime.Goexit(); return nil, nil }},
}

// What the client gets at each end of a run, whatever happens to the store at that moment, with
// the option and without it: never a reply whose retry gets another one.
func TestAnswerAfterRecord_eachEndOfARun(t *testing.T) {
	t.Parallel()
	for outage, o := range endOutages {
		for exit, e := range endExits {
			for mode, opts := range map[string][]guardgrpc.Option{
				"at once": nil, "after the record": {idempotency.WithAnswerAfterRecord()},
				"after the tombstone": {idempotency.WithAnswerAfterRecord(), idempotency.WithMode(idempotency.Reject)},
			} {
				t.Run(fmt.Sprint(exit, ", ", outage, ", ", mode), func(t *testing.T) {
					inOutage(t, func(t *testing.T, s *outageStand) {
						var away atomic.Bool
						s.breakWhile(&away)
						s.handle = func(ctx context.Context, run int64) (any, error) {
							if run == 1 {
								_ = grpc.SetHeader(ctx, metadata.Pairs("x-run", "1"))
								_ = grpc.SetTrailer(ctx, metadata.Pairs("x-end", "1"))
								o.begin(s, &away, ctx)
								time.AfterFunc(o.lasts, func() { away.Store(false) })
							}
							return e.end(run)
						}
						first := s.call(t.Context())
						require.Equal(t, idempotency.Ran, first.outcome.Result)
						unrecorded, held := e.kept && o.err != nil, mode != "at once"
						// It may say no more than that the context has ended.
						lateError := outage == "lost" && e.code == codes.NotFound
						switch {
						case exit == "a panic", exit == "the end of its goroutine":
							require.True(t, first.aborted)
						case unrecorded && held && !lateError:
							require.Equal(t, codes.Unavailable, status.Code(first.err))
							require.EqualValues(t, "unrecorded", guardgrpc.ResultOf(first.err))
							require.True(t, guard.Ran(first.err))
							require.Empty(t, first.header)
							require.Empty(t, first.trailer["x-end"])
							require.NotEmpty(t, first.trailer["grpc-retry-pushback-ms"])
							require.Nil(t, first.reply)
						default:
							require.Equal(t, e.code, status.Code(first.err))
							require.Equal(t, []string{"1"}, first.header["x-run"])
							require.Equal(t, []string{"1"}, first.trailer["x-end"])
						}
						if unrecorded {
							require.ErrorIs(t, first.outcome.Err, o.err)
							require.True(t, guard.Ran(first.outcome.Err))
							require.Equal(t, idempotency.KeepNothing, first.outcome.Kept)
						}

						time.Sleep(o.lasts)
						time.Sleep(5 * time.Second) // the Guard goes on trying
						again := s.call(t.Context())
						if e.kept && o.err == nil {
							require.EqualValues(t, 1, s.runs.Load())
							return
						}
						require.Equal(t, idempotency.Ran, again.outcome.Result)
						require.EqualValues(t, 2, s.runs.Load())
					}, opts...)
				})
			}
		}
	}
}

// breakWhile makes the store answer nothing while it is away.
func (s *outageStand) breakWhile(away *atomic.Bool) {
	s.OnRenew = func(ctx context.Context, _ int, _ driver.Claim) (bool, error) {
		if away.Load() {
			return false, guardtest.Hang(ctx)
		}
		return false, guardtest.ErrUnscripted
	}
	s.OnRelease = func(ctx context.Context, _ int, _ driver.Claim, _ driver.After) (bool, error) {
		if away.Load() {
			return false, guardtest.Hang(ctx)
		}
		return false, guardtest.ErrUnscripted
	}
}

// A header that the handler sends cannot be held back. Metadata that it sets is, until the record
// is there.
func TestAnswerAfterRecord_metadata(t *testing.T) {
	t.Parallel()
	inOutage(t, func(t *testing.T, s *outageStand) {
		s.handle = func(ctx context.Context, run int64) (any, error) {
			stream := ctx.Value(streamKey{}).(*fakeStream)
			err := errors.Join(grpc.SetHeader(ctx, metadata.Pairs("x-a", "1")), grpc.SetTrailer(ctx, metadata.Pairs("x-c", "3")))
			require.Empty(t, stream.header)
			err = errors.Join(err, grpc.SendHeader(ctx, metadata.Pairs("x-b", "2")))
			require.Equal(t, metadata.Pairs("x-a", "1", "x-b", "2"), stream.sent)
			require.Empty(t, stream.trailer)
			return text("a", run), err
		}
		stream := new(fakeStream)
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("idempotency-key", "k"))
		ctx = grpc.NewContextWithServerTransportStream(context.WithValue(ctx, streamKey{}, stream), stream)
		_, err := s.once(ctx, wrapperspb.String("a"), &grpc.UnaryServerInfo{FullMethod: claim}, func(ctx context.Context, _ any) (any, error) {
			return s.handle(ctx, 1)
		})
		require.NoError(t, err)
		require.Equal(t, metadata.Pairs("x-c", "3"), stream.trailer)
	}, idempotency.WithAnswerAfterRecord())
}

type streamKey struct{}
