package guardhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"

	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

const fingerprintSize = sha256.Size

// A fingerprint returns what of a request must be the same in a retry, see WithFingerprint.
type fingerprint func(r *http.Request, body []byte) ([]byte, error)

// of hashes what makes a request the same as another: by default the query and the raw body.
func (f fingerprint) of(r *http.Request, body []byte) ([]byte, error) {
	h := sha256.New()
	if f == nil {
		query := keys.Hash(r.URL.RawQuery)
		h.Write(query[:])
	} else {
		var err error
		if body, err = f(r, body); err != nil {
			return nil, err
		}
	}
	h.Write(body)
	return h.Sum(nil), nil
}

// same compares two fingerprints. It takes as long whether they differ early or late. No
// fingerprint is the same as any: it was not asked for when the record was made, or is not now.
func same(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || hmac.Equal(a, b) }

// identity returns the key under which the store knows a request. It is a hash, so that what
// clients send does not show in the store, and has none of its characters.
func (m *middleware) identity(scope, key, host string, r *http.Request) string {
	kind := "once"
	if m.mode == Exclusive {
		kind = "exclusive" // has no records, and must not meet any
	}
	var sum [sha256.Size]byte
	if m.group != "" {
		sum = keys.Hash(kind, scope, "group", m.group, key)
	} else {
		sum = keys.Hash(kind, scope, "path", host, r.Method, requestPath(r), r.URL.EscapedPath(), key)
	}
	return "http:" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// requestPath returns the path that the client sent, which may have been cut since
// (http.StripPrefix).
func requestPath(r *http.Request) string {
	if u, err := url.ParseRequestURI(r.RequestURI); err == nil {
		return u.EscapedPath()
	}
	return ""
}
