package guardhttp

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// A ClientOption is a setting of ClientKeys. ClientKeys refuses what cannot work.
type ClientOption func(*clientSettings)

type clientSettings struct {
	refused.List
	methods []string
}

// WithClientMethods sets which methods get a key. Defaults to POST and PATCH: the others can be
// repeated as they are.
func WithClientMethods(methods ...string) ClientOption {
	return func(s *clientSettings) {
		if len(methods) == 0 || slices.Contains(methods, "") {
			s.Refuse("WithClientMethods", fmt.Sprintf("%q", methods), "needs the names of methods, such as POST")
		}
		s.methods = slices.Clone(methods)
	}
}

// ClientKeys returns a RoundTripper that sends requests by next, or by http.DefaultTransport if
// that is nil. It gives each POST and PATCH a key in the header Idempotency-Key: a random UUID, so
// that the attempts that next makes for a request, and no other request, have the same key.
// net/http's own Transport is one that makes several: with the key, it repeats a request whose
// connection was lost before the answer, if it can read the body again (Request.GetBody).
//
// Put it in front of what retries: behind that, each attempt would be a new request. The client of
// a library that retries has to be next:
//
//	keys, err := guardhttp.ClientKeys(&retryablehttp.RoundTripper{Client: retrying})
//	client := &http.Client{Transport: keys}
//
// A caller that repeats a request by itself, such as in a loop around Client.Do, chooses the key by
// WithKey. A key that is in the header of a request stays. Requests are not changed, but copied.
// Settings that cannot work are *guard.SettingError, all of them in one error. The RoundTripper is
// safe for concurrent use, if next is.
func ClientKeys(next http.RoundTripper, opts ...ClientOption) (http.RoundTripper, error) {
	s := clientSettings{methods: []string{http.MethodPost, http.MethodPatch}}
	refused.Apply(&s.List, &s, opts)
	if s.Err != nil {
		return nil, s.Err
	}
	if next == nil {
		next = http.DefaultTransport
	}
	return &keyedTransport{next: next, methods: s.methods}, nil
}

// A keyedTransport adds keys to requests.
type keyedTransport struct {
	next    http.RoundTripper
	methods []string
}

// RoundTrip implements http.RoundTripper.
func (t *keyedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !slices.Contains(t.methods, r.Method) || r.Header.Get(keyHeader) != "" {
		return t.next.RoundTrip(r)
	}
	key, err := keys.ForClient(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as a RoundTripper has to
		}
		return nil, idempotent.NoKey("WithKey", err)
	}
	keyed := *r
	keyed.Header = r.Header.Clone()
	if keyed.Header == nil {
		keyed.Header = http.Header{}
	}
	keyed.Header.Set(keyHeader, key)
	return t.next.RoundTrip(&keyed)
}

// CloseIdleConnections closes those of next, for http.Client.CloseIdleConnections.
func (t *keyedTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
