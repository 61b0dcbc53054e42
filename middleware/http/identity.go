package guardhttp

import (
	"crypto/sha256"
	"net/http"
	"net/url"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// A fingerprint returns what of a request must be the same in a retry, see WithFingerprint.
type fingerprint func(r *http.Request, body []byte) ([]byte, error)

// of hashes what makes a request the same as another: by default the query and the body.
func (f fingerprint) of(r *http.Request, body []byte) ([]byte, error) {
	h := sha256.New()
	if f == nil {
		query := keys.Hash(r.URL.RawQuery)
		h.Write(query[:])
		f = content
	}
	what, err := f(r, body)
	if err != nil {
		return nil, err
	}
	h.Write(what)
	return h.Sum(nil), nil
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
