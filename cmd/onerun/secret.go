package main

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
)

const (
	// tokenName is the parameter of the first URL that has the secret.
	tokenName = "token"
	// cookieName begins the name of the cookie that has it afterwards. Cookies do not depend on the
	// port, so each program has a name of its own.
	cookieName = "onerun-"
)

// A secret keeps other users of this host from the page: everyone here can connect to a loopback
// address.
type secret struct{ token, cookie string }

func newSecret() secret { return secret{rand.Text(), cookieName + rand.Text()} }

// required refuses requests without the secret. A URL that has it sets a cookie and leads to the
// page.
func (s secret) required(page http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := r.URL.Query().Get(tokenName); token != "" && s.is(token) {
			http.SetCookie(w, &http.Cookie{
				Name: s.cookie, Value: s.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
			})
			w.Header().Set("Referrer-Policy", "no-referrer")
			w.Header().Set("Location", "./")
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		if c, err := r.Cookie(s.cookie); err != nil || !s.is(c.Value) {
			http.Error(w, "open the URL that onerun ui has printed", http.StatusForbidden)
			return
		}
		page.ServeHTTP(w, r)
	})
}

func (s secret) is(token string) bool {
	return subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) == 1
}
