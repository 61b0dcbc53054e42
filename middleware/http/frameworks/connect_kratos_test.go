package frameworks_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	kratoslog "github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/middleware/recovery"
	kratos "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/http/frameworks"
)

// kratosServer has the shop behind the middleware as a filter.
func kratosServer(_ *testing.T, s *shop, idempotent middleware) http.Handler {
	kratoslog.SetLogger(kratoslog.NewStdLogger(io.Discard))
	server := kratos.NewServer(kratos.Filter(idempotent), kratos.Middleware(recovery.Recovery()), kratos.Timeout(time.Minute))
	route := server.Route("/")
	for _, path := range paths {
		route.POST(path, func(c kratos.Context) error {
			s.ServeHTTP(c.Response(), c.Request())
			return nil
		})
	}
	return server
}

const claimProcedure = "/shop.v1.Shop/Claim"

// A connectShop is a Connect server with one unary procedure.
type connectShop struct {
	runs   atomic.Int64
	fails  atomic.Pointer[connect.Error]
	server *httptest.Server
}

func newConnectShop(t *testing.T, idempotent middleware, opts ...connect.HandlerOption) *connectShop {
	t.Helper()
	s := &connectShop{}
	mux := http.NewServeMux()
	mux.Handle(claimProcedure, idempotent(connect.NewUnaryHandler(claimProcedure,
		func(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue], error) {
			s.runs.Add(1)
			if err := s.fails.Load(); err != nil {
				return nil, err
			}
			return connect.NewResponse(wrapperspb.String("receipt of " + r.Msg.GetValue())), nil
		}, opts...)))
	s.server = httptest.NewUnstartedServer(mux)
	s.server.EnableHTTP2 = true
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	return s
}

// claim calls the procedure with a key.
func (s *connectShop) claim(t *testing.T, key string, opts ...connect.ClientOption) (*connect.Response[wrapperspb.StringValue], error) {
	t.Helper()
	client := connect.NewClient[wrapperspb.StringValue, wrapperspb.StringValue](s.server.Client(), s.server.URL+claimProcedure, opts...)
	r := connect.NewRequest(wrapperspb.String("coupon"))
	r.Header().Set("Idempotency-Key", key)
	return client.CallUnary(t.Context(), r)
}

// Clients of the Connect protocol are clients of HTTP.
func TestConnect_replaysUnaryCalls(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]connect.ClientOption{"protobuf": nil, "JSON": {connect.WithProtoJSON()}} {
		s := newConnectShop(t, newMiddleware(t))
		for range 2 {
			answer, err := s.claim(t, "a", opts...)
			require.NoError(t, err, name)
			require.Equal(t, "receipt of coupon", answer.Msg.GetValue())
		}
		require.EqualValues(t, 1, s.runs.Load())
		for _, c := range []struct {
			code connect.Code
			runs int64 // of a failed call and its retry
		}{{connect.CodeUnavailable, 2}, {connect.CodeInternal, 2}, {connect.CodeInvalidArgument, 1}} {
			before := s.runs.Load()
			s.fails.Store(connect.NewError(c.code, errShop))
			for range 2 {
				_, err := s.claim(t, c.code.String(), opts...)
				require.Equal(t, c.code, connect.CodeOf(err))
			}
			require.Equal(t, c.runs, s.runs.Load()-before, "%s, %v", name, c.code)
		}
	}
}

// Answers to gRPC and gRPC-Web have status 200 even if the call has failed. So guardhttp refuses
// the call, and the handler does not run.
func TestConnect_guardhttpRefusesClientsOfGRPC(t *testing.T) {
	t.Parallel()
	for name, protocol := range map[string]connect.ClientOption{"gRPC": connect.WithGRPC(), "gRPC-Web": connect.WithGRPCWeb()} {
		s := newConnectShop(t, newMiddleware(t))
		for range 2 {
			_, err := s.claim(t, "a", protocol)
			require.Equal(t, connect.CodeUnknown, connect.CodeOf(err), name)
			require.ErrorContains(t, err, "500", name)
		}
		require.Zero(t, s.runs.Load(), name)
	}
}

// The interceptor serves all three protocols. It keeps that a call has succeeded.
func TestConnect_theInterceptor(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]connect.ClientOption{"Connect": nil, "gRPC": {connect.WithGRPC()}, "gRPC-Web": {connect.WithGRPCWeb()}} {
		g, err := guard.New(memory.New(), guard.WithNamespace("test"))
		require.NoError(t, err)
		s := newConnectShop(t, func(h http.Handler) http.Handler { return h }, connect.WithInterceptors(frameworks.Connect(g, time.Hour)))
		s.fails.Store(connect.NewError(connect.CodeUnavailable, errShop))
		_, err = s.claim(t, "a", opts...)
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err), name)
		s.fails.Store(nil)
		_, err = s.claim(t, "a", opts...)
		require.NoError(t, err, "a call that has failed leaves no marker")
		_, err = s.claim(t, "a", opts...)
		require.Equal(t, connect.CodeAlreadyExists, connect.CodeOf(err), name)
		require.EqualValues(t, 2, s.runs.Load())
		_, err = s.claim(t, "", opts...)
		require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err), name)
		require.NoError(t, g.Do(t.Context(), claimProcedure+":b", func(context.Context) error {
			_, err := s.claim(t, "b", opts...)
			require.Equal(t, connect.CodeAborted, connect.CodeOf(err), name)
			return nil
		}))
		require.NoError(t, g.Close(t.Context()))
		_, err = s.claim(t, "c", opts...)
		require.Equal(t, connect.CodeUnavailable, connect.CodeOf(err), name)
		require.NotErrorIs(t, err, guard.ErrClosed, "a client does not learn why")
		require.EqualValues(t, 2, s.runs.Load())
	}
}
