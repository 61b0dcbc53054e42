package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"strings"
)

const (
	// tokenName is the parameter of the first URL that has the secret.
	tokenName = "token"
	// cookieName is the name of the cookie that has it afterwards.
	cookieName = "onerun"
)

// A secret keeps other users of this host from the page: everyone here can connect to a loopback
// address. Browsers send a cookie to all ports of a host, and another user may serve one of them.
// So the cookie is for a path that only this program knows, with a slash at its end.
type secret struct{ token, path string }

func newSecret() secret { return secret{rand.Text(), "/" + rand.Text() + "/"} }

// required serves the page under the path, and refuses requests without the secret. A URL that has
// it sets a cookie and leads to the page.
func (s secret) required(page http.Handler) http.Handler {
	page = http.StripPrefix(strings.TrimSuffix(s.path, "/"), page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.URL.Query().Get(tokenName); token != "" && s.is(token) {
			http.SetCookie(w, &http.Cookie{
				Name: cookieName, Value: s.token, Path: s.path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
			})
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Location", s.path)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(cookieName); err != nil || !s.is(c.Value) {
			http.Error(w, "open the URL that onerun ui has printed", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

func (s secret) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}
