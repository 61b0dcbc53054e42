package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// keysEcho answers with the request's body, and with its key in a header.
func keysEcho(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Key", url.QueryEscape(idempotency.Key(r.Context())))
	contentEcho(w, r)
}

// keysOf returns the key under which a request ran for the first time.
func keysOf(t *testing.T, a httpAnswer) string {
	t.Helper()
	require.Equal(t, http.StatusOK, a.status, a.body)
	key, err := url.QueryUnescape(a.header.Get("X-Key"))
	require.NoError(t, err)
	require.NotEmpty(t, key)
	return key
}

// Rows 26 and 27, and what else a header can be.
func TestKeys_ofTheHeader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 255)
	for _, c := range []struct{ line, key string }{ // without a key it is refused
		{`abc`, `abc`},
		{`"abc"`, `abc`},
		{`"abc";a=1`, `abc`},
		{`"abc"; a=1;b; c="d"`, `abc`},
		{`"abc";*a`, `abc`},
		{`"a b"`, `a b`},
		{`"  "`, `  `},
		{`"a,b"`, `a,b`},
		{`"abc";note="a,b"`, `abc`}, // a comma in a parameter (RFC 8941, section 3.1.2)
		{`"abc";a="x, \"y";b=1`, `abc`},
		{`a,b`, `a,b`},
		{`a;b=1`, `a;b=1`},
		{`a:b`, `a:b`},
		{`{a}`, `{a}`},
		{`"{a}:{b}"`, `{a}:{b}`},
		{`a|b/c?d#e%41`, `a|b/c?d#e%41`},
		{`"a\"b"`, `a"b`},
		{`"a\\b"`, `a\b`},
		{`a\b`, `a\b`},
		{`"\\\""`, `\"`},
		{`"';--"`, `';--`},
		{`123`, `123`},
		{`?1`, `?1`},
		{`:YWJj:`, `:YWJj:`},
		{`8e03978e-40d5-43e8-bc93-6894a57f9324`, `8e03978e-40d5-43e8-bc93-6894a57f9324`},
		{long, long},
		{`"` + long + `"`, long},
		{`"` + strings.Repeat(`\\`, 255) + `"`, strings.Repeat(`\`, 255)},
		{long + "k", ""},
		{`"` + long + `k"`, ""},
		{`"` + strings.Repeat(`\\`, 256) + `"`, ""},
		{strings.Repeat("k", 5000), ""},
		{``, ""},
		{`""`, ""},
		{`"";a=1`, ""},
		{`"`, ""},
		{`"abc`, ""},
		{`"abc\`, ""},
		{`"abc\"`, ""},
		{`"a\bc"`, ""},
		{`abc"`, ""},
		{`a"b`, ""},
		{`a b`, ""},
		{`"a""b"`, ""},
		{`"a" "b"`, ""},
		{`"a","b"`, ""},
		{`"a", "b"`, ""},
		{`"a";b, "c"`, ""},
		{`"a"b`, ""},
		{`"a";`, ""},
		{`"a" ;b`, ""},
		{`"a";B`, ""},
		{`"a";1`, ""},
		{`("a" "b")`, ""},
		{"a\tb", ""},
		{"\"a\tb\"", ""},
		{"k\u00e9", ""},
		{"\"k\u00e9\"", ""},
		{"\"k\xff\"", ""},
		{"k\u2028", ""},
	} {
		r, err := http.NewRequest(http.MethodPost, "/", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", c.line)
		key, err := guardhttp.IdempotencyKey(r)
		if c.key != "" {
			require.NoError(t, err, "%q", c.line)
			require.Equal(t, c.key, key)
			continue
		}
		var invalid *idempotency.KeyError
		require.ErrorAs(t, err, &invalid, "%q", c.line)
		require.NotErrorIs(t, err, idempotency.ErrNoKey, "%q: it is there", c.line)
		require.Equal(t, "header Idempotency-Key", invalid.From)
		require.NotContains(t, invalid.Error(), "abc", "what was sent does not show")
	}
}

// Row 26: what only a client can send that writes to the connection itself.
func TestKeys_rawLines(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: keysEcho})
	for _, line := range []string{"Idempotency-Key: a\x01b", "Idempotency-Key: a\x00b", "Idempotency-Key: a\x7fb", "Idempotency-Key: \"a\x1bb\""} {
		conn := contentDial(t, site.url)
		conn.say(t, "POST /things HTTP/1.1", "Host: a", "X-Tenant: acme", line, "Content-Length: 0", "")
		require.Equal(t, http.StatusBadRequest, conn.receive(t).status, "%q", line)
	}
	site.requireRan(t, 0)
	require.Empty(t, site.leases(t))

	for i, lines := range [][]string{ // the same key
		{"idempotency-key: abc"}, {"IDEMPOTENCY-KEY:abc"}, {"Idempotency-Key: \t \"abc\" \t"}, {"Idempotency-Key:", "  abc"},
	} {
		conn := site.dial(t)
		conn.say(t, append(append([]string{"POST /things HTTP/1.1", "Host: a", "X-Tenant: acme"}, lines...), "Content-Length: 0", "")...)
		a := conn.receive(t)
		require.Equal(t, 200, a.status, "%q", lines)
		require.Equal(t, i > 0, a.replayed(), "%q", lines)
	}
	conn := site.dial(t)
	conn.say(t, "POST http://elsewhere.example/things HTTP/1.1", "Host: a", "X-Tenant: acme", "Idempotency-Key: abc", "Content-Length: 0", "")
	require.True(t, conn.receive(t).replayed(), "a target in absolute form")
	site.requireRan(t, 1)
}

// The same if code in front of the middleware has changed the path.
func TestKeys_behindStripPrefix(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{
		handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s as %s", r.RequestURI, r.URL.Path) },
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			inner := idempotent(h)
			mux := http.NewServeMux()
			mux.Handle("/v1/", http.StripPrefix("/v1", inner))
			mux.Handle("/v2/", http.StripPrefix("/v2", inner))
			// one path for two
			mux.HandleFunc("/front/", func(w http.ResponseWriter, r *http.Request) {
				clone := r.Clone(r.Context())
				clone.URL.Path = "/" + r.Header.Get("X-Site")
				inner.ServeHTTP(w, clone)
			})
			mux.Handle("/", inner)
			return mux
		}})
	for i, c := range []struct{ path, site string }{{"/v1/orders", ""}, {"/v2/orders", ""}, {"/orders", ""}, {"/front/", "one"}, {"/front/", "two"}} {
		edits := []contentEdit{contentHeader("Idempotency-Key", "k"), contentHeader("X-Site", c.site)}
		first := site.send(t, http.MethodPost, c.path, "", edits...)
		require.Equal(t, 200, first.status)
		require.False(t, first.replayed(), "%v", c)
		site.send(t, http.MethodPost, c.path, "", edits...).requireReplayOf(t, first)
		site.requireRan(t, i+1)
	}
}

func TestKeys_fromAHeaderAsItIs(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.FromHeader("x-request-key")})
	send := func(values ...string) httpAnswer {
		return site.send(t, http.MethodPost, "/things", "body", contentHeader("X-Request-Key", values...))
	}
	for i, value := range []string{`abc`, `"abc"`, `a b`, `a,b`, `"a`, strings.Repeat("k", 255), `abc;v=1`} {
		first := send(value)
		require.Equal(t, value, keysOf(t, first))
		require.Equal(t, "body", first.body)
		send(value).requireReplayOf(t, first)
		site.requireRan(t, i+1)
	}
	ran := int(site.ran.Load())
	for _, bad := range [][]string{{""}, {strings.Repeat("k", 256)}, {"a\tb"}, {"\u00e9"}, {"a", "a"}} {
		requireProblem(t, send(bad...), 400, idempotency.KeyInvalid)
	}
	requireProblem(t, send(), 400, idempotency.KeyMissing)
	site.requireRan(t, ran)
}

func TestKeys_fromThePath(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	inside := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromPathValue("id"),
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /coupons/{id}/claim", idempotent(h))
			mux.Handle("POST /files/{id...}", idempotent(h))
			mux.Handle("POST /other/{name}", idempotent(h))
			return mux
		}})
	for path, id := range map[string]string{
		"/coupons/17/claim": "17", "/coupons/18/claim": "18", "/coupons/a%2Fb/claim": "a/b", "/coupons/%22%7B%C3%A9/claim": "\"{\u00e9",
		"/files/a/b": "a/b", "/files/a%2Fb": "a/b", "/files/" + strings.Repeat("p", 4096): strings.Repeat("p", 4096),
	} {
		ran := int(inside.ran.Load())
		first := inside.send(t, http.MethodPost, path, "body")
		require.False(t, first.replayed(), path)
		require.Equal(t, id, keysOf(t, first))
		require.Equal(t, "body", first.body)
		inside.send(t, http.MethodPost, path, "body").requireReplayOf(t, first)
		inside.requireRan(t, ran+1)
	}
	ran := int(inside.ran.Load())
	requireProblem(t, inside.send(t, http.MethodPost, "/files/", "body"), 400, idempotency.KeyMissing)
	requireProblem(t, inside.send(t, http.MethodPost, "/other/17", "body"), 500, idempotency.Refused)
	require.ErrorContains(t, inside.outcome(t).Err, `the pattern "POST /other/{name}" has no wildcard "id"`)
	requireProblem(t, inside.send(t, http.MethodPost, "/files/"+strings.Repeat("p", 4097), "body"), 400, idempotency.KeyInvalid)
	inside.requireRan(t, ran)

	outside := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromPathValue("id"), opts: []guardhttp.Option{idempotency.WithOptionalKey()},
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST /coupons/{id}/claim", h)
			return idempotent(mux)
		}})
	requireProblem(t, outside.send(t, http.MethodPost, "/coupons/17/claim", "body"), 500, idempotency.Refused)
	require.ErrorContains(t, outside.outcome(t).Err, "the middleware must be inside of the mux")
	outside.requireRan(t, 0)
}

// What a KeyFunc of the caller's own says about a key reaches the client if it is a *KeyError, and
// no other error does.
func TestKeys_errorsOfYourOwn(t *testing.T) {
	t.Parallel()
	store := contentMemory(t)
	for name, c := range map[string]struct {
		err    error
		status int
		code   idempotency.Result
		shows  bool
	}{
		"a KeyError":           {&idempotency.KeyError{From: "cookie order", Reason: "is odd"}, 400, idempotency.KeyInvalid, true},
		"a wrapped KeyError":   {fmt.Errorf("secret: %w", &idempotency.KeyError{From: "cookie order", Reason: "is odd"}), 400, idempotency.KeyInvalid, false},
		"a missing one":        {&idempotency.KeyError{From: "cookie order", Reason: "is odd", Missing: true}, 400, idempotency.KeyMissing, true},
		"ErrNoKey":             {fmt.Errorf("secret: %w", idempotency.ErrNoKey), 400, idempotency.KeyMissing, false},
		"another":              {errors.New("secret"), 500, idempotency.Refused, false},
		"a body that broke":    {io.ErrUnexpectedEOF, 500, idempotency.Refused, false},
		"a context that ended": {context.Canceled, 500, idempotency.Refused, false},
	} {
		t.Run(name, func(t *testing.T) {
			site := store.site(t, contentSetup{handler: keysEcho, key: func(*http.Request) (string, error) { return "k", c.err }})
			a := site.send(t, http.MethodPost, "/things", "")
			requireProblem(t, a, c.status, c.code)
			require.Equal(t, c.shows, strings.Contains(a.body, "The cookie order is odd."))
			require.NotContains(t, a.body, "secret")
			require.ErrorIs(t, site.outcome(t).Err, c.err)
			site.requireRan(t, 0)
		})
	}
}

func TestKeys_functionsThatCannotWork(t *testing.T) {
	t.Parallel()
	for name, construct := range map[string]func(){
		"FromHeader":           func() { guardhttp.FromHeader("") },
		"FromHeader, blank":    func() { guardhttp.FromHeader(" ") },
		"FromPathValue":        func() { guardhttp.FromPathValue("") },
		"FromForm":             func() { guardhttp.FromForm("") },
		"FromJSON":             func() { guardhttp.FromJSON("") },
		"FromJSON, inside":     func() { guardhttp.FromJSON("a", "") },
		"FromContext":          func() { guardhttp.FromContext(nil) },
		"Join, first":          func() { guardhttp.Join(nil) },
		"Join, another":        func() { guardhttp.Join(guardhttp.IdempotencyKey, nil) },
		"Join, one of several": func() { guardhttp.Join(guardhttp.IdempotencyKey, guardhttp.IdempotencyKey, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				require.Regexp(t, "^guardhttp: "+strings.Split(name, ",")[0]+": .*(empty|nil)$", recover())
			}()
			construct()
		})
	}
}
