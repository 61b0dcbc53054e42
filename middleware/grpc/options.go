package guardgrpc

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

// An Option is a setting of New: one of this package, or an idempotency.Option, which guardhttp and
// guardgrpc share. New refuses a setting that cannot work.
type Option interface{ GRPC() }

// An option is an Option of this package.
type option func(*settings)

// GRPC implements Option.
func (option) GRPC() {}

// settings are what the options have set.
type settings struct {
	idempotent.Settings

	key     KeyFunc
	scope   KeyFunc
	methods []string
	print   fingerprint
	policy  func(*status.Status) bool
	without []string // metadata that is not kept
}

// WithScope sets the principal that owns a call: a stable name, such as the number of the account,
// which an authenticating interceptor in front has established. Keys of different scopes never
// collide. New needs it, or WithGlobalKeys. Within a scope, keys belong to a method.
//
// Do not take what changes between a call and its retry, such as a token: each retry would be a
// new call. And do not take what several principals share, such as an address: one would get the
// reply of another. An empty scope, or an error of any kind, refuses the call with INTERNAL,
// because only authenticated calls should reach the interceptor. Defaults to none: New returns a
// *guard.SettingError unless WithGlobalKeys is set.
func WithScope(scope KeyFunc) Option {
	return option(func(s *settings) {
		if scope == nil {
			s.Refuse("WithScope", nil, "must not be nil")
		}
		s.scope = scope
	})
}

// WithMethods sets which methods need a key, by their full names: "/package.Service/Method". Calls
// of other methods are passed on. Defaults to no names: a call of any unary method is guarded if
// it has a key, and passed on if it has none.
func WithMethods(methods ...string) Option {
	return option(func(s *settings) {
		checkMethods(s.Refuse, "WithMethods", methods)
		s.methods = slices.Clone(methods)
	})
}

// checkMethods refuses what cannot be the full name of a method.
func checkMethods(refuse func(option string, value any, reason string), option string, methods []string) {
	if len(methods) == 0 {
		refuse(option, nil, "must name a method")
	}
	for _, m := range methods {
		service, method, ok := strings.Cut(strings.TrimPrefix(m, "/"), "/")
		if !ok || !strings.HasPrefix(m, "/") || service == "" || method == "" || strings.Contains(method, "/") {
			refuse(option, fmt.Sprintf("%q", m), "is no full name of a method, which has the form /package.Service/Method")
		}
	}
}

// WithFingerprint sets what of a request must be the same in a retry. A call with the same key
// that differs is refused with INVALID_ARGUMENT. f returns bytes of any length, a hash of which is
// kept with the reply. It must not change the request. An error of f refuses the call with
// INVALID_ARGUMENT. Use it if retries differ in something that does not matter, such as a
// timestamp. f is called concurrently.
//
// With nil there is no fingerprint: the key alone says which calls are the same one. This is for
// keys that your service makes, and not the client.
//
// The deterministic bytes of a message can change with the version of protobuf and of the message.
// So a retry across a deployment can, rarely, be refused. Defaults to the type and the
// deterministic bytes of the message, and to none in Reject and Exclusive mode.
func WithFingerprint(f func(ctx context.Context, info *grpc.UnaryServerInfo, req any) ([]byte, error)) Option {
	return option(func(s *settings) { s.print, s.OwnPrint, s.NoPrint = f, f != nil, f == nil })
}

// WithPolicy sets which replies and errors are kept. If p returns false, nothing is kept, and a
// retry runs the handler. s is never nil, and its code is OK for a reply. A handler can choose for
// one of its own, see idempotency.SetKeep. p is called concurrently. Defaults to KeepFinal.
func WithPolicy(p func(s *status.Status) bool) Option {
	return option(func(s *settings) {
		if p == nil {
			s.Refuse("WithPolicy", nil, "must not be nil")
		}
		s.policy = p
	})
}

// WithoutMetadata names metadata of headers and trailers that is never kept and never replayed,
// besides that of the list in the documentation (cookies, authentication and the usual names of
// tokens). The client of the first call gets it, and a retry does not. Use it for all metadata of
// your own that has a secret. Several calls add up. Defaults to none.
func WithoutMetadata(names ...string) Option {
	return option(func(s *settings) {
		if len(names) == 0 {
			s.Refuse("WithoutMetadata", nil, "must name metadata")
		}
		for _, name := range names {
			name = strings.ToLower(name)
			if !validName(name) {
				s.Refuse("WithoutMetadata", fmt.Sprintf("%q", name), "is no name of metadata")
			}
			s.without = append(s.without, name)
		}
	})
}
