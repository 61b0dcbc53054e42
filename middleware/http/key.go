package guardhttp

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A KeyFunc finds in a request what it must not run twice for. An error refuses the request: an
// *idempotency.KeyError with status 400, as the client's mistake, any other with 500, as the
// server's. An empty key is a missing one, as is an error for which
// errors.Is(err, idempotency.ErrNoKey) holds. With idempotency.ErrUnguarded, the request is passed
// on.
//
// It may read the request's body, up to the size of WithMaxBody. Each function, and the handler,
// gets the body from its beginning. A KeyFunc is called concurrently.
type KeyFunc func(r *http.Request) (string, error)

// FromHeader returns a KeyFunc that takes the value of a header as it is: one line of 1 to 255
// bytes of printable ASCII. For the Idempotency-Key header take IdempotencyKey, which reads quoted
// keys, too. It panics without a name.
func FromHeader(name string) KeyFunc {
	keys.MustName("guardhttp: FromHeader", name)
	from := place("header " + http.CanonicalHeaderKey(name))
	return func(r *http.Request) (string, error) { return from.found(keys.Plain(r.Header.Values(name))) }
}

// A place is where a key should be.
type place string

// found returns a key that was found there, or the *idempotency.KeyError for an error of package
// keys.
func (p place) found(key string, err error) (string, error) {
	if err != nil {
		return "", idempotent.NoKey(string(p), err)
	}
	return key, nil
}

// FromPathValue returns a KeyFunc that takes what a wildcard of the pattern matched, see
// http.Request.PathValue. The middleware must be inside of the mux, around the handler. If it is
// not, or if the pattern has no wildcard of that name, requests are refused with status 500. It
// panics without a name.
func FromPathValue(name string) KeyFunc {
	keys.MustName("guardhttp: FromPathValue", name)
	return func(r *http.Request) (string, error) {
		value := r.PathValue(name)
		// Only a wildcard for several segments can match nothing.
		if value == "" && !strings.Contains(r.Pattern, "{"+name+"...}") {
			return "", fmt.Errorf("guardhttp: FromPathValue: the pattern %q has no wildcard %q: the middleware must be inside of the mux, around the handler", r.Pattern, name)
		}
		return place("path value " + name).found(keys.Found(value))
	}
}

// FromForm returns a KeyFunc that takes a field of a form in the body, URL-encoded or multipart,
// and none of the query. A field that occurs twice is refused. It panics without a name.
func FromForm(field string) KeyFunc {
	keys.MustName("guardhttp: FromForm", field)
	from := place("form field " + field)
	return func(r *http.Request) (string, error) {
		values, err := formValues(r, field)
		if err != nil {
			return from.found("", errNoForm)
		}
		switch len(values) {
		case 0:
			return from.found("", keys.ErrMissing)
		case 1:
			return from.found(keys.Found(values[0]))
		}
		return from.found("", errManyFields)
	}
}

// FromContext returns a KeyFunc that takes a value out of the request's context, such as one that
// an authentication in front of the middleware has put there. It is a string, an integer, an array
// of bytes such as a UUID, or a type of these, also behind pointers. The underlying value counts,
// and not what the type's String method returns: a UserID(7) is "7". So values that differ never
// give one key, if all are of one type.
//
// A zero value, a nil pointer, an ID of zeros and "<nil>" count as missing, because a field that
// was never set has them. Values of other types refuse the request with status 500: put their name
// or number into the context. It panics if key is nil.
func FromContext(key any) KeyFunc {
	if key == nil {
		panic("guardhttp: FromContext: the key must not be nil")
	}
	return func(r *http.Request) (string, error) { return idempotent.HTTP.KeyFromContext(r.Context(), key) }
}

// Join returns a KeyFunc whose key combines the keys of all of its functions. None may be missing.
// It is a hash of the parts and their lengths, so that no two lists of parts share one. It panics
// if a function is nil.
func Join(first KeyFunc, more ...KeyFunc) KeyFunc {
	all := append([]KeyFunc{first}, more...)
	for i, f := range all {
		if f == nil {
			panic(fmt.Sprintf("guardhttp: Join: function %d is nil", i+1))
		}
	}
	return func(r *http.Request) (string, error) {
		body := r.Body
		return idempotent.HTTP.JoinKeys(len(all), func(i int) (string, error) {
			rewind(r, body)
			return all[i](r)
		})
	}
}

const keyHeader = "Idempotency-Key"

// IdempotencyKey is the KeyFunc of the Idempotency-Key header. It takes the quoted string that the
// draft asks for (a String of RFC 8941, whose parameters are ignored). It also takes the raw text
// that most clients send: abc and "abc" are the same key. A key has 1 to 255 bytes of printable
// ASCII, and a raw one has no spaces and no quotes. An empty key, another character or a second
// line is an *idempotency.KeyError.
func IdempotencyKey(r *http.Request) (string, error) {
	return place("header " + keyHeader).found(keys.Header(r.Header.Values(keyHeader)))
}

// FromJSON returns a KeyFunc that takes a field of the JSON object in the body, or, with more
// names, of the objects inside of it. The value must be a string or an integer. A name that occurs
// twice in an object is refused, even in other letters (id and ID): decoders differ in which of
// them they take, and encoding/json takes either. So is a value or a name that is not UTF-8, or
// has half of a surrogate pair: several would be one key. It panics without a name.
func FromJSON(field string, inside ...string) KeyFunc {
	names := append([]string{field}, inside...)
	keys.MustName("guardhttp: FromJSON", names...)
	from := place("JSON field " + strings.Join(names, "."))
	return func(r *http.Request) (string, error) {
		all, err := wholeBody(r)
		if err != nil {
			return "", err
		}
		key, err := keys.JSON(all, names)
		if err == nil {
			key, err = keys.Found(key)
		}
		return from.found(key, err)
	}
}

var (
	errNoForm     = errors.New("cannot be read: the body is no form that can be parsed")
	errManyFields = errors.New("occurs more than once in the form")
)

// formValues returns the values of a field of the form in the body.
func formValues(r *http.Request, field string) ([]string, error) {
	all, err := wholeBody(r)
	if err != nil {
		return nil, err
	}
	if parsed(r, all) {
		values := r.PostForm[field]
		if len(values) == 0 && r.MultipartForm != nil {
			values = r.MultipartForm.Value[field]
		}
		return values, nil
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, errNoForm
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(all))
		return values[field], err
	case "multipart/form-data":
		form, err := multipart.NewReader(bytes.NewReader(all), parameters["boundary"]).ReadForm(int64(len(all)))
		if err != nil {
			return nil, err
		}
		defer form.RemoveAll() //nolint:errcheck // all of it was in memory
		return form.Value[field], nil
	}
	return nil, errNoForm
}

// covers reports whether a key of a request of that method counts.
func (m *middleware) covers(method string) bool {
	if len(m.methods) > 0 {
		return slices.Contains(m.methods, method)
	}
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, "QUERY":
		return false
	}
	return true
}

// requires reports whether requests of that method must have a key. The draft speaks of POST and
// PATCH.
func (m *middleware) requires(method string) bool {
	if m.Optional {
		return false
	}
	return len(m.methods) > 0 || method == http.MethodPost || method == http.MethodPatch
}

// routed reports whether the handler can be more than a mux that knows no route for the request.
// The next version of the service may have the route, so the answer must not be kept.
func (q *exchange) routed() bool {
	mux, ok := q.next.(*http.ServeMux)
	if !ok {
		return true
	}
	_, q.route = mux.Handler(q.r)
	return q.route != ""
}

// errGRPC is the cause of a request of gRPC or gRPC-Web. Its answer has status 200 even if the call
// has failed, so a failure would be kept, and the retry would not run.
var errGRPC = errors.New("guardhttp: a request of gRPC or gRPC-Web has status 200 also if the call has failed, so its answer must not be kept: " +
	"wrap the procedures with an interceptor instead, guardgrpc's or that of docs/recipes.md for Connect")

// byGRPC reports whether a client of gRPC or gRPC-Web has sent the request.
func byGRPC(r *http.Request) bool {
	return strings.HasPrefix(strings.ToLower(r.Header.Get("Content-Type")), "application/grpc")
}

// identity returns the key under which the store knows a request.
func (m *middleware) identity(scope, key, host string, r *http.Request) string {
	return m.Stored(scope, key, "path", host, r.Method, requestPath(r), r.URL.EscapedPath())
}

// requestPath returns the path that the client sent, which may have been cut since
// (http.StripPrefix).
func requestPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return ""
}

// routeHost returns the host in the pattern that has matched the request, or that a mux behind the
// middleware will match; "" if the pattern has none.
func (q *exchange) routeHost() string {
	return cmp.Or(patternHost(q.r.Pattern), patternHost(q.route))
}

// patternHost returns the host of a pattern of http.ServeMux: "[METHOD ][HOST]/[PATH]".
func patternHost(pattern string) string {
	if method := strings.IndexAny(pattern, " \t"); method >= 0 {
		pattern = strings.TrimLeft(pattern[method:], " \t")
	}
	host, _, _ := strings.Cut(pattern, "/")
	return host
}
