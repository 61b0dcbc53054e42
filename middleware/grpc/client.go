package guardgrpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A ClientOption is a setting of ClientKeys. ClientKeys refuses what cannot work.
type ClientOption func(*clientSettings)

type clientSettings struct {
	refused.List
	methods []string // all if there are none
	name    string
}

// WithClientMethods sets which methods get a key, by their full names: "/package.Service/Method".
// Defaults to all unary methods.
func WithClientMethods(methods ...string) ClientOption {
	return func(s *clientSettings) {
		checkMethods(s.Refuse, "WithClientMethods", methods)
		s.methods = slices.Clone(methods)
	}
}

// WithClientMetadata names the metadata that has the key, for servers that read another one.
// Defaults to "idempotency-key".
func WithClientMetadata(name string) ClientOption {
	return func(s *clientSettings) {
		name := strings.ToLower(name)
		if !validName(name) || strings.HasPrefix(name, "grpc-") || strings.HasSuffix(name, "-bin") {
			s.Refuse("WithClientMetadata", fmt.Sprintf("%q", name), "is no name of metadata that is text")
		}
		s.name = name
	}
}

// ClientKeys returns an interceptor that sends a key with each unary call: a random UUID, so that
// the retries of a call, and no other call, have the same key. These are the retries of gRPC's own
// retry policy (in the service config), and those of an interceptor behind this one, such as
// go-grpc-middleware's. Put it in front of such an interceptor: behind it, each attempt would be a
// new call.
//
//	grpc.WithChainUnaryInterceptor(keys, retry.UnaryClientInterceptor())
//
// A caller that retries by itself chooses the key by WithKey. A key that the caller has put into
// the outgoing metadata stays. Settings that cannot work are *guard.SettingError, all of them in
// one error. The interceptor is safe for concurrent use.
func ClientKeys(opts ...ClientOption) (grpc.UnaryClientInterceptor, error) {
	s := clientSettings{name: keyName}
	refused.Apply(&s.List, &s, opts)
	if s.Err != nil {
		return nil, s.Err
	}
	return s.intercept, nil
}

func (s *clientSettings) intercept(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if len(s.methods) > 0 && !slices.Contains(s.methods, method) {
		return next(ctx, method, req, reply, cc, opts...)
	}
	if sent, _ := metadata.FromOutgoingContext(ctx); len(sent[s.name]) > 0 {
		return next(ctx, method, req, reply, cc, opts...)
	}
	key, err := keys.ForClient(ctx)
	if err != nil {
		return status.Error(codes.InvalidArgument, "guardgrpc: the key of WithKey "+err.Error())
	}
	return next(metadata.AppendToOutgoingContext(ctx, s.name, key), method, req, reply, cc, opts...)
}
