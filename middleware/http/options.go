package guardhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
)

const defaultMaxBody = 1 << 20

// An Option is a setting of New: one of this package, or an idempotency.Option, which guardhttp and
// guardgrpc share. New refuses a setting that cannot work.
type Option interface{ HTTP() }

// An option is an Option of this package.
type option func(*settings)

// HTTP implements Option.
func (option) HTTP() {}

// settings are what the options have set.
type settings struct {
	idempotent.Settings

	key       KeyFunc
	scope     KeyFunc
	methods   []string
	print     fingerprint
	maxBody   int64
	policy    func(status int, header http.Header) bool
	without   []string // headers that are not kept, in canonical form
	docs      string
	onProblem func(http.ResponseWriter, *http.Request, Problem)
}

// WithScope sets the principal that owns a request: a stable name, such as the number of the
// account, which an authentication in front of the middleware has established. Keys of different
// scopes never collide. New needs it, or WithGlobalKeys. Within a scope, keys belong to a method,
// a path, and the host in the route's pattern if it has one (see the package documentation, "Whose
// keys").
//
// Do not take what changes between a request and its retry, such as a token: each retry would be a
// new request. And do not take what several principals share, such as an address: one would get
// the answer of another. An empty scope, or an error of any kind, refuses the request with status
// 500, because only authenticated requests should reach the middleware. Defaults to none: New
// returns a *guard.SettingError unless WithGlobalKeys is set.
func WithScope(scope KeyFunc) Option {
	return option(func(s *settings) {
		if scope == nil {
			s.Refuse("WithScope", nil, "must not be nil")
		}
		s.scope = scope
	})
}

// WithMethods sets which methods need a key. Requests of other methods are passed on. New refuses
// HEAD, OPTIONS and TRACE.
//
// Without WithMethods, only POST and PATCH need a key. GET, HEAD, OPTIONS, TRACE and QUERY change
// nothing and are passed on. Requests of other methods, such as PUT and DELETE, are guarded if
// they have a key, and passed on if they have none. Defaults to POST and PATCH, as in the draft.
func WithMethods(methods ...string) Option {
	return option(func(s *settings) {
		if len(methods) == 0 {
			s.Refuse("WithMethods", nil, "must name a method")
		}
		for _, m := range methods {
			switch {
			case !validName(m) || m != strings.ToUpper(m):
				s.Refuse("WithMethods", m, "is no method: they are written in capital letters")
			case slices.Contains([]string{http.MethodHead, http.MethodOptions, http.MethodTrace}, m):
				s.Refuse("WithMethods", m, "never needs a key")
			}
		}
		s.methods = slices.Clone(methods)
	})
}

// WithFingerprint sets what of a request must be the same in a retry. A request with the same key
// that differs is refused with status 422. f returns bytes of any length, a hash of which is kept
// with the answer. It gets the whole body, which it must not change. An error of f refuses the
// request with status 400. Use it if retries differ in something that does not matter, such as the
// boundaries of a multipart form (FingerprintMultipart). f is called concurrently.
//
// With nil there is no fingerprint: the key alone says which requests are the same one. This is
// for keys that your service makes, and not the client. The body is then not read before the
// handler reads it.
//
// If code in front of the middleware has parsed a form and left no body, the fields and files of
// the form count instead of the bytes. The request then differs from a retry whose form was not
// parsed. Defaults to the query and the bytes of the body, and to none in Reject and Exclusive
// mode.
func WithFingerprint(f func(r *http.Request, body []byte) ([]byte, error)) Option {
	return option(func(s *settings) { s.print, s.OwnPrint, s.NoPrint = f, f != nil, f == nil })
}

// WithMaxBody bounds the bodies of requests, in bytes, if the middleware has to read them: for the
// fingerprint, for a key in them, and before waiting. Larger ones are refused with status 413.
// Defaults to 1 MiB.
func WithMaxBody(bytes int64) Option {
	return option(func(s *settings) {
		if bytes < 0 || bytes > 1<<40 {
			s.Refuse("WithMaxBody", bytes, "must be from 0 to 1 TiB")
		}
		s.maxBody = bytes
	})
}

// WithPolicy sets which answers are kept. If p returns false, nothing is kept, and a retry runs
// the handler. header is what the handler has set of it, and must not be changed. A handler can
// choose for one of its own, see idempotency.SetKeep. p is called concurrently. Defaults to
// KeepFinal.
func WithPolicy(p func(status int, header http.Header) bool) Option {
	return option(func(s *settings) {
		if p == nil {
			s.Refuse("WithPolicy", nil, "must not be nil")
		}
		s.policy = p
	})
}

// KeepFinal is the default of WithPolicy. It keeps 2xx, 3xx and 4xx, except for those that the
// same request may not get the next time. These are 401, 403, 407, 408, 421, 423, 425, 429, and
// 499, which some servers use if the client has gone. It does not keep a refusal of another
// guardhttp behind the handler, such as that of the service behind a gateway, if the refusal has a
// Retry-After header.
func KeepFinal(status int, header http.Header) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout,
		http.StatusMisdirectedRequest, http.StatusLocked, http.StatusTooEarly, http.StatusTooManyRequests, 499:
		return false
	}
	if header.Get(refusedHeader) != "" && header.Get("Retry-After") != "" {
		return false
	}
	return status >= 200 && status < 500
}

// WithoutHeaders names headers of answers that are never kept and never replayed, besides those of
// the list in the documentation (cookies, authentication and the usual names of tokens). The client
// of the first request gets them, and a retry does not. Use it for each header of your own that has
// a secret. Several calls add up. Defaults to none.
func WithoutHeaders(names ...string) Option {
	return option(func(s *settings) {
		if len(names) == 0 {
			s.Refuse("WithoutHeaders", nil, "must name a header")
		}
		for _, name := range names {
			if !validName(name) {
				s.Refuse("WithoutHeaders", fmt.Sprintf("%q", name), "is no name of a header")
			}
			s.without = append(s.without, http.CanonicalHeaderKey(name))
		}
	})
}

// WithDocs sets the page that explains your keys to your clients, an absolute URL without a
// fragment. The Link header of the problems that the middleware answers points to it (rel
// "describedby"), with their code as the fragment. Their type does not change. Defaults to
// PROBLEMS.md of this version.
func WithDocs(url string) Option {
	return option(func(s *settings) {
		if !validDocs(url) {
			s.Refuse("WithDocs", fmt.Sprintf("%q", url), "must be an absolute URL without a fragment")
		}
		s.docs = url
	})
}

// WithProblems makes f answer if the middleware refuses a request, in a form of your own.
// Problem.ServeHTTP is what it replaces. The Retry-After header is set before. f is called
// concurrently. Defaults to Problem.ServeHTTP.
func WithProblems(f func(w http.ResponseWriter, r *http.Request, p Problem)) Option {
	return option(func(s *settings) {
		if f == nil {
			s.Refuse("WithProblems", nil, "must not be nil")
		}
		s.onProblem = f
	})
}
