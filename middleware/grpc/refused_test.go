package guardgrpc_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"
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

// away is a store that does not answer.
func away() guard.Locker {
	return &guardtest.Scripted{OnAcquire: func(context.Context, int, driver.Claim) (driver.Answer, error) {
		return driver.Answer{}, guardtest.Fail(driver.KindConnection)
	}}
}

// Each refusal has its code, its ErrorInfo, and a RetryInfo if another attempt can help. The
// client learns nothing of the server's own errors.
func TestRefusals_haveDetails(t *testing.T) {
	t.Parallel()
	secret := errors.New("secret")
	fail := func(err error) guardgrpc.KeyFunc {
		return func(context.Context, *grpc.UnaryServerInfo, any) (string, error) { return "", err }
	}
	for name, c := range map[string]struct {
		setup  setup
		key    string
		result idempotency.Result
		code   codes.Code
		field  string // of a BadRequest
		retry  bool
	}{
		"no key": {
			setup{opts: []guardgrpc.Option{guardgrpc.WithMethods(claim)}},
			"", idempotency.KeyMissing,
			codes.InvalidArgument, "metadata idempotency-key", false,
		},
		"a key that is none": {setup{}, `a b`, idempotency.KeyInvalid, codes.InvalidArgument, "metadata idempotency-key", false},
		"no scope":           {setup{noScope: true, opts: []guardgrpc.Option{guardgrpc.WithScope(fail(nil))}}, "k", idempotency.Refused, codes.Internal, "", false},
		"a scope that fails": {setup{noScope: true, opts: []guardgrpc.Option{guardgrpc.WithScope(fail(secret))}}, "k", idempotency.Refused, codes.Internal, "", false},
		"a key that fails":   {setup{key: fail(secret)}, "k", idempotency.Refused, codes.Internal, "", false},
		"a fingerprint that fails": {
			setup{opts: []guardgrpc.Option{guardgrpc.WithFingerprint(
				func(context.Context, *grpc.UnaryServerInfo, any) ([]byte, error) { return nil, secret })}},
			"k",
			idempotency.BodyInvalid, codes.InvalidArgument, "", false,
		},
		"the store is away": {setup{guard: newGuard(t, away())}, "k", idempotency.Unavailable, codes.Unavailable, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, runs := counted(nil)
			s := c.setup.serve(t, h)
			a := s.call(t.Context(), c.key, "a")
			require.Equal(t, c.code, status.Code(a.err))
			require.Equal(t, c.result, guardgrpc.ResultOf(a.err))
			require.NotContains(t, a.err.Error(), "secret")
			require.False(t, a.replayed())
			field := ""
			for _, detail := range status.Convert(a.err).Details() {
				switch d := detail.(type) {
				case *errdetails.ErrorInfo:
					require.Equal(t, strings.ToUpper(string(c.result)), d.GetReason())
					require.Equal(t, "onerun", d.GetDomain())
				case *errdetails.BadRequest:
					field = d.GetFieldViolations()[0].GetField()
				}
			}
			require.Equal(t, c.field, field)
			if c.retry {
				require.Equal(t, time.Second, retryInfo(t, a.err).GetRetryDelay().AsDuration())
			}
			require.Equal(t, c.retry, len(a.trailer["grpc-retry-pushback-ms"]) > 0)
			o := s.log.next(t)
			require.Equal(t, c.result, o.Result)
			require.Equal(t, c.code, codes.Code(o.Status))
			if strings.Contains(name, "fails") {
				require.ErrorIs(t, o.Err, secret)
			}
			require.Zero(t, runs.Load())
		})
	}
}

// The same key with another request is a mistake of the client.
func TestRefusals_ofAnotherRequest(t *testing.T) {
	t.Parallel()
	first := func(_ context.Context, _ *grpc.UnaryServerInfo, req any) ([]byte, error) {
		return []byte(req.(*wrapperspb.StringValue).GetValue()[:1]), nil
	}
	for name, c := range map[string]struct {
		opts     []guardgrpc.Option
		mismatch bool
	}{
		"by default":    {nil, true},
		"the first one": {[]guardgrpc.Option{guardgrpc.WithFingerprint(first)}, false},
		"none":          {[]guardgrpc.Option{guardgrpc.WithFingerprint(nil)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := counted(nil)
			s := setup{opts: append(c.opts, idempotency.WithLease(guard.WithLabel("the first")))}.serve(t, h)
			requireRan(t, s.call(t.Context(), "k", "a1"), "a1 by run 1")
			s.log.next(t)
			a := s.call(t.Context(), "k", "a2")
			o := s.log.next(t)
			require.Equal(t, "the first", o.Label)
			if !c.mismatch {
				requireReplay(t, a, "a1 by run 1")
				return
			}
			require.Equal(t, codes.InvalidArgument, status.Code(a.err))
			require.Equal(t, idempotency.Mismatch, guardgrpc.ResultOf(a.err))
			require.Equal(t, idempotency.Mismatch, o.Result)
		})
	}
}

// Which calls are guarded.
func TestMethods(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts         []guardgrpc.Option
		method, key  string
		want, second idempotency.Result
	}{
		"any with a key":       {nil, claim, "k", idempotency.Ran, idempotency.Replayed},
		"any without one":      {nil, claim, "", idempotency.Untouched, idempotency.Untouched},
		"named":                {[]guardgrpc.Option{guardgrpc.WithMethods(claim)}, claim, "k", idempotency.Ran, idempotency.Replayed},
		"named, without a key": {[]guardgrpc.Option{guardgrpc.WithMethods(claim)}, claim, "", idempotency.KeyMissing, idempotency.KeyMissing},
		"named, optional": {
			[]guardgrpc.Option{guardgrpc.WithMethods(claim), idempotency.WithOptionalKey()},
			claim, "",
			idempotency.Untouched, idempotency.Untouched,
		},
		"not named": {[]guardgrpc.Option{guardgrpc.WithMethods(claim)}, other, "k", idempotency.Untouched, idempotency.Untouched},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := counted(nil)
			s := setup{opts: c.opts}.serve(t, h)
			ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme")
			if c.key != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "idempotency-key", c.key)
			}
			for _, want := range []idempotency.Result{c.want, c.second} {
				s.invoke(ctx, c.method, "a")
				require.Equal(t, want, s.log.next(t).Result)
			}
		})
	}
}

// A group shares its keys among methods.
func TestMethods_ofAGroup(t *testing.T) {
	t.Parallel()
	h, _ := counted(nil)
	s := setup{opts: []guardgrpc.Option{idempotency.WithGroup("g")}}.serve(t, h)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "acme", "idempotency-key", "k")
	requireRan(t, s.invoke(ctx, claim, "a"), "a by run 1")
	requireReplay(t, s.invoke(ctx, other, "a"), "a by run 1")
}

type accountKey struct{}

// A maskedAccount has a text that is the same for all.
type maskedAccount int

func (maskedAccount) String() string { return "***" }

// The key functions.
func TestKeys(t *testing.T) {
	t.Parallel()
	md := func(pairs ...string) context.Context {
		return metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
	}
	with := func(value any) context.Context { return context.WithValue(context.Background(), accountKey{}, value) }
	req := &grpc_testing.SimpleRequest{
		ResponseSize: 7, FillUsername: true, ResponseStatus: &grpc_testing.EchoStatus{Code: -3, Message: "m"}, Payload: &grpc_testing.Payload{Body: []byte("b")},
	}
	account := guardgrpc.FromContext(accountKey{})
	for name, c := range map[string]struct {
		key  guardgrpc.KeyFunc
		ctx  context.Context
		req  any
		want string
		bad  string // what the error says
	}{
		"raw":                      {guardgrpc.IdempotencyKey, md("idempotency-key", "abc"), nil, "abc", ""},
		"quoted":                   {guardgrpc.IdempotencyKey, md("idempotency-key", `"a b\"c"`), nil, `a b"c`, ""},
		"none":                     {guardgrpc.IdempotencyKey, md(), nil, "", "is missing"},
		"no metadata":              {guardgrpc.IdempotencyKey, context.Background(), nil, "", "is missing"},
		"two":                      {guardgrpc.IdempotencyKey, md("idempotency-key", "a", "idempotency-key", "b"), nil, "", "2 times"},
		"empty":                    {guardgrpc.IdempotencyKey, md("idempotency-key", ""), nil, "", "is empty"},
		"long":                     {guardgrpc.IdempotencyKey, md("idempotency-key", strings.Repeat("k", 256)), nil, "", "longer than 255"},
		"binary":                   {guardgrpc.IdempotencyKey, md("idempotency-key", "a\xff"), nil, "", "not printable"},
		"metadata":                 {guardgrpc.FromMetadata("X-Request-Id"), md("x-request-id", `"a b"`), nil, `"a b"`, ""},
		"no such metadata":         {guardgrpc.FromMetadata("x-request-id"), md(), nil, "", "metadata x-request-id is missing"},
		"a string":                 {account, with("a"), nil, "a", ""},
		"a number":                 {account, with(12), nil, "12", ""},
		"a UUID":                   {account, with([16]byte{1}), nil, "01000000-0000-0000-0000-000000000000", ""},
		"no value":                 {account, context.Background(), nil, "", "no value"},
		"a masked number":          {account, with(maskedAccount(12)), nil, "12", ""},
		"zero":                     {account, with(0), nil, "", "no value"},
		"a masked zero":            {account, with(maskedAccount(0)), nil, "", "no value"},
		"an ID of zeros":           {account, with([12]byte{}), nil, "", "no value"},
		"a nil pointer":            {account, with((*maskedAccount)(nil)), nil, "", "no value"},
		"an unset address":         {account, with(netip.Addr{}), nil, "", "netip.Addr, which is no string"},
		"no IP":                    {account, with(net.IP(nil)), nil, "", "net.IP, which is no string"},
		"another kind":             {account, with(1.5), nil, "", "no string"},
		"a field":                  {guardgrpc.FromField("response_size"), nil, req, "7", ""},
		"a field inside":           {guardgrpc.FromField("response_status", "message"), nil, req, "m", ""},
		"a number inside":          {guardgrpc.FromField("response_status", "code"), nil, req, "-3", ""},
		"a field that is not set":  {guardgrpc.FromField("response_size"), nil, &grpc_testing.SimpleRequest{}, "", "field response_size is missing"},
		"inside what is not set":   {guardgrpc.FromField("response_status", "message"), nil, &grpc_testing.SimpleRequest{}, "", "is missing"},
		"no such field":            {guardgrpc.FromField("request_id"), nil, req, "", "has no field"},
		"inside what is no object": {guardgrpc.FromField("response_size", "message"), nil, req, "", "has no field"},
		"a field of another kind":  {guardgrpc.FromField("fill_username"), nil, req, "", "neither a string"},
		"a field that is long":     {guardgrpc.FromField("value"), nil, wrapperspb.String(strings.Repeat("v", 4097)), "", "longer than 4096"},
		"of no message":            {guardgrpc.FromField("value"), nil, "text", "", "no proto.Message"},
		"joined, one missing":      {guardgrpc.Join(account, guardgrpc.IdempotencyKey), with("a"), nil, "", "is missing"},
	} {
		if c.ctx == nil {
			c.ctx = context.Background()
		}
		got, err := c.key(c.ctx, &grpc.UnaryServerInfo{}, c.req)
		if c.bad != "" {
			require.ErrorContains(t, err, c.bad, name)
			require.Equal(t, strings.Contains(c.bad, "missing") || strings.Contains(c.bad, "no value"), errors.Is(err, idempotency.ErrNoKey), name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.want, got, name)
	}
	join := guardgrpc.Join(guardgrpc.FromMetadata("a"), guardgrpc.FromMetadata("b"))
	one, err := join(md("a", "x", "b", "yz"), nil, nil)
	require.NoError(t, err)
	two, err := join(md("a", "xy", "b", "z"), nil, nil)
	require.NoError(t, err)
	require.NotEqual(t, one, two)
	for name, f := range map[string]func(){
		"FromMetadata": func() { guardgrpc.FromMetadata("a b") }, "FromMetadata binary": func() { guardgrpc.FromMetadata("a-bin") },
		"FromContext": func() { guardgrpc.FromContext(nil) }, "FromField": func() { guardgrpc.FromField("a", "") },
		"Join": func() { guardgrpc.Join(guardgrpc.IdempotencyKey, nil) },
	} {
		require.Panics(t, f, name)
	}
}

// New refuses what cannot work, and names it. The options of package idempotency are refused in one
// place, which the tests of guardhttp prove.
func TestNew_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g := newGuard(t, memory.New())
	global := idempotency.WithGlobalKeys()
	for name, c := range map[string]struct {
		setting string
		opts    []guardgrpc.Option
	}{
		"no scope":              {"WithScope", nil},
		"both":                  {"WithGlobalKeys", []guardgrpc.Option{guardgrpc.WithScope(tenant), global}},
		"nil scope":             {"WithScope", []guardgrpc.Option{guardgrpc.WithScope(nil), global}},
		"nil option":            {"Option", []guardgrpc.Option{nil, global}},
		"no method":             {"WithMethods", []guardgrpc.Option{guardgrpc.WithMethods(), global}},
		"method":                {"WithMethods", []guardgrpc.Option{guardgrpc.WithMethods("Claim"), global}},
		"scope records, global": {"WithMaxScopeRecords", []guardgrpc.Option{idempotency.WithMaxScopeRecords(1), global}},
		"scope waiters, global": {"WithMaxScopeWaiters", []guardgrpc.Option{idempotency.WithMaxScopeWaiters(1), global}},
		"scope waiters": {
			"WithMaxScopeWaiters",
			[]guardgrpc.Option{guardgrpc.WithScope(tenant), idempotency.WithMaxWaiters(5, 2), idempotency.WithMaxScopeWaiters(6)},
		},
		"policy":      {"WithPolicy", []guardgrpc.Option{guardgrpc.WithPolicy(nil), global}},
		"no metadata": {"WithoutMetadata", []guardgrpc.Option{guardgrpc.WithoutMetadata(), global}},
		"metadata":    {"WithoutMetadata", []guardgrpc.Option{guardgrpc.WithoutMetadata("x a"), global}},
		"fingerprint": {"WithFingerprint", []guardgrpc.Option{idempotency.WithMode(idempotency.Exclusive), global, guardgrpc.WithFingerprint(
			func(context.Context, *grpc.UnaryServerInfo, any) ([]byte, error) { return nil, nil })}},
		"after the record, exclusive": {
			"WithAnswerAfterRecord",
			[]guardgrpc.Option{idempotency.WithAnswerAfterRecord(), idempotency.WithMode(idempotency.Exclusive), global},
		},
		"after the record, fail open": {"WithAnswerAfterRecord", []guardgrpc.Option{idempotency.WithAnswerAfterRecord(), idempotency.WithFailOpen(), global}},
		"lease":                       {"WithTTL", []guardgrpc.Option{idempotency.WithLease(guard.WithTTL(-1)), global}},
	} {
		_, err := guardgrpc.New(g, guardgrpc.IdempotencyKey, c.opts...)
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting, name)
		require.Equal(t, c.setting, setting.Setting, name)
	}
	_, err := guardgrpc.New(nil, nil, global)
	require.ErrorContains(t, err, "guard")
	require.ErrorContains(t, err, "key")
}
