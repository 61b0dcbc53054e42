package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
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

// A parameter may have a text with a comma in it (RFC 8941, section 3.1.2), and parameters are
// ignored.
func TestKeys_commasInParameters(t *testing.T) {
	t.Parallel()
	for _, line := range []string{`"abc";note="a,b"`, `"abc";a="x, \"y";b=1`} {
		r, err := http.NewRequest(http.MethodPost, "/", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Idempotency-Key", line)
		key, err := guardhttp.IdempotencyKey(r)
		require.NoError(t, err, "%q", line)
		require.Equal(t, "abc", key)
	}
}

// Rows 26 and 27, over the wire.
func TestKeys_overTheWire(t *testing.T) {
	t.Parallel()
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		site := contentRedis(t).site(t, contentSetup{http2: http2, handler: keysEcho})
		lines := [][]string{ // the same keys
			{`abc`, `"abc"`, `"abc";v=1`, ` abc `},
			{`"a b"`, `"a b" `},
			{`{a}:b,c`, `"{a}:b,c"`},
			{`"a\"b"`},
			{`"a\\b"`, `a\b`},
			{strings.Repeat("~", 255), `"` + strings.Repeat("~", 255) + `"`},
			{`ABC`},
			{`/things`, `"/things"`},
		}
		for _, same := range lines {
			ran := int(site.ran.Load())
			first := site.post(t, same[0], "body")
			require.False(t, first.replayed(), "%q is the key of another", same[0])
			for _, line := range append(same, same[0]) {
				site.post(t, line, "body").requireReplayOf(t, first)
			}
			site.requireRan(t, ran+1)
		}
		for name := range site.leases(t) {
			require.Regexp(t, `^onerun:\{[0-9a-f]+\}:lease:test::http:[A-Za-z0-9_-]{43}$`, name, "nothing of a key shows")
		}
		for _, bad := range [][]string{{""}, {`""`}, {`"`}, {"a b"}, {strings.Repeat("k", 256)}, {"a\tb"}, {"k\u00e9"}, {"a", "b"}, {"a", "a"}, {`"a"`, `"a"`}, {"", "a"}} {
			a := site.send(t, http.MethodPost, "/things", "body", contentHeader("Idempotency-Key", bad...))
			requireProblem(t, a, http.StatusBadRequest, idempotency.KeyInvalid)
			o := site.outcome(t)
			require.Equal(t, idempotency.KeyInvalid, o.Result)
			var invalid *idempotency.KeyError
			require.ErrorAs(t, o.Err, &invalid)
			require.Contains(t, a.body, invalid.Reason, "the client learns what is wrong")
		}
		site.requireRan(t, len(lines))
		require.Len(t, site.leases(t), len(lines))
	})
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

// The same key on another path, or with another method, is another key.
func TestKeys_belongToMethodAndPath(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	answer := func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %q %q", r.Method, r.RequestURI, r.URL.Path)
	}
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: answer})
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		targets := []string{"POST /a/b", "PUT /a/b", "DELETE /a/b", "POST /a%2Fb", "POST /a", "POST /a/", "POST /", "POST //a", "POST /a//b", "POST /A",
			"POST /a;b", "POST /a%3Fb", "POST /a/../b", "POST /b", "POST /caf%C3%A9", "POST /a%20b", "POST /a+b", "POST /a%00b", "POST /POST", "POST /ab",
			"POST /coupons/1/claim", "POST /coupons/2/claim"}
		for i, target := range targets {
			method, path, _ := strings.Cut(target, " ")
			first := site.send(t, method, path, "", contentHeader("Idempotency-Key", "k"))
			require.False(t, first.replayed(), target)
			site.send(t, method, path, "", contentHeader("Idempotency-Key", "k")).requireReplayOf(t, first)
			site.requireRan(t, i+1)
		}
		require.Len(t, store.leases(t), len(targets))
	})
}

// The same if code in front of the middleware has changed the path.
func TestKeys_behindStripPrefix(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{
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

func TestKeys_ofAGroup(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
	setup := contentSetup{handler: func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method, r.URL.Path) }}
	plain := store.site(t, setup)
	setup.opts = []guardhttp.Option{idempotency.WithGroup("claims")}
	claims := store.site(t, setup)
	setup.opts = []guardhttp.Option{idempotency.WithGroup("claim")}
	claim := store.site(t, setup)
	setup.opts = []guardhttp.Option{idempotency.WithGroup("claims"), idempotency.WithMode(idempotency.Exclusive)}
	exclusive := store.site(t, setup)
	key := contentHeader("Idempotency-Key", "k")

	first := claims.send(t, "POST", "/a", "", key)
	require.Equal(t, "POST/a", first.body)
	claims.send(t, "PUT", "/b", "", key).requireReplayOf(t, first)
	claims.send(t, "POST", "/a", "", key, contentHeader("X-Tenant", "other"))
	claims.requireRan(t, 2)

	require.False(t, claim.send(t, "POST", "/a", "", key).replayed(), "another group")
	require.False(t, claim.send(t, "POST", "/a", "", contentHeader("Idempotency-Key", "sk")).replayed())
	require.False(t, plain.send(t, "POST", "/a", "", key).replayed(), "no group")
	require.False(t, plain.send(t, "POST", "/claims", "", key).replayed())
	require.Equal(t, "PUT/b", exclusive.send(t, "PUT", "/b", "", key).body, "which remembers nothing")
	require.Equal(t, "PUT/b", exclusive.send(t, "PUT", "/b", "", key).body)
	exclusive.requireRan(t, 2)
	claims.send(t, "PUT", "/b", "", key).requireReplayOf(t, first)
}

func TestKeys_joined(t *testing.T) {
	t.Parallel()
	a, b, c := guardhttp.FromHeader("X-A"), guardhttp.FromHeader("X-B"), guardhttp.FromHeader("X-C")
	key := func(f guardhttp.KeyFunc, values ...string) (string, error) {
		r, err := http.NewRequest(http.MethodPost, "/", http.NoBody)
		require.NoError(t, err)
		for i, v := range values {
			r.Header.Set("X-"+string(rune('A'+i)), v)
		}
		return f(r)
	}
	seen := map[string]string{}
	once := func(what string, key string, err error) {
		t.Helper()
		require.NoError(t, err, what)
		require.Empty(t, seen[key], "%s has the key of %s", what, seen[key])
		seen[key] = what
	}
	for _, v := range [][]string{{"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"bc", "a"}, {"a,", "bc"}, {"a", ",bc"}, {"a b", "c"}, {"a", "b c"}, {"1", "11"}, {"11", "1"}} {
		k, err := key(guardhttp.Join(a, b), v...)
		once(fmt.Sprintf("%q", v), k, err)
		again, err := key(guardhttp.Join(a, b), v...)
		require.NoError(t, err)
		require.Equal(t, k, again)
	}
	for name, f := range map[string]guardhttp.KeyFunc{
		"one":        guardhttp.Join(a),
		"two of one": guardhttp.Join(a, a),
		"other way":  guardhttp.Join(b, a, c),
		"flat":       guardhttp.Join(a, b, c),
		"left":       guardhttp.Join(guardhttp.Join(a, b), c),
		"right":      guardhttp.Join(a, guardhttp.Join(b, c)),
	} {
		k, err := key(f, "x", "y", "z")
		once(name, k, err)
		require.Regexp(t, "^[0-9a-f]{64}$", k)
	}
	_, err := key(guardhttp.Join(a, b), "only one")
	require.ErrorIs(t, err, idempotency.ErrNoKey)
	empty := func(*http.Request) (string, error) { return "", nil }
	_, err = key(guardhttp.Join(a, empty), "x")
	require.ErrorIs(t, err, idempotency.ErrNoKey)
	boom := errors.New("boom")
	_, err = key(guardhttp.Join(a, func(*http.Request) (string, error) { return "text", boom }), "x")
	require.ErrorIs(t, err, boom)

	// As a key: a user may claim each coupon once.
	site := contentRedis(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.Join(guardhttp.FromHeader("X-User"), guardhttp.FromJSON("coupon"))})
	post := func(user, body string) httpAnswer {
		return site.send(t, http.MethodPost, "/claim", body, contentHeader("X-User", user))
	}
	first := post("u1", `{"coupon":"1"}`)
	require.Equal(t, `{"coupon":"1"}`, first.body) //nolint:testifylint // byte for byte
	post("u1", `{"coupon":"1"}`).requireReplayOf(t, first)
	require.False(t, post("u", `{"coupon":"11"}`).replayed())
	site.requireRan(t, 2)
	requireProblem(t, site.send(t, http.MethodPost, "/claim", `{"coupon":1}`), 400, idempotency.KeyMissing)
	requireProblem(t, post("u1", `{}`), 400, idempotency.KeyMissing)
	requireProblem(t, post("u1", `{`), 400, idempotency.KeyInvalid)
	site.requireRan(t, 2)
}

func TestKeys_fromAHeaderAsItIs(t *testing.T) {
	t.Parallel()
	site := contentRedis(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.FromHeader("x-request-key")})
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
	store := contentRedis(t)
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

func TestKeys_fromAForm(t *testing.T) {
	t.Parallel()
	const urlencoded, multi = "application/x-www-form-urlencoded", `multipart/form-data; boundary="b"`
	part := func(name, value string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	file := "--b\r\nContent-Disposition: form-data; name=\"key\"; filename=\"key\"\r\n\r\nk\r\n"
	store := contentRedis(t)
	contentProtocols(t, func(t *testing.T, http2 bool) {
		site := store.site(t, contentSetup{http2: http2, handler: keysEcho, key: guardhttp.FromForm("key")})
		require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		for _, c := range []struct {
			kind, body string
			key        string
			refused    idempotency.Result
		}{
			{kind: urlencoded, body: "key=k1&other=1", key: "k1"},
			{kind: urlencoded + "; charset=utf-8", body: "other=1&key=k2", key: "k2"},
			{kind: "Application/X-WWW-Form-Urlencoded", body: "key=k3", key: "k3"},
			{kind: urlencoded, body: "key=a+b%26c%3D%C3%A9%00%22", key: "a b&c=\u00e9\x00\""},
			{kind: urlencoded, body: "%6bey=k4&Key=no", key: "k4"},
			{kind: multi, body: part("key", "k5") + part("other", "1") + "--b--\r\n", key: "k5"},
			{kind: multi, body: part("other", "1") + part("key", "k6\r\nsecond line") + "--b--\r\n", key: "k6\r\nsecond line"},
			{kind: urlencoded, body: "key=k7&key=k7", refused: idempotency.KeyInvalid},
			{kind: urlencoded, body: "key=k7&%6bey=k8", refused: idempotency.KeyInvalid},
			{kind: multi, body: part("key", "a") + part("key", "b") + "--b--\r\n", refused: idempotency.KeyInvalid},
			{kind: urlencoded, body: "other=1", refused: idempotency.KeyMissing},
			{kind: urlencoded, body: "key=", refused: idempotency.KeyMissing},
			{kind: urlencoded, body: "key", refused: idempotency.KeyMissing},
			{kind: urlencoded, body: "", refused: idempotency.KeyMissing},
			{kind: multi, body: part("other", "1") + "--b--\r\n", refused: idempotency.KeyMissing},
			{kind: multi, body: file + "--b--\r\n", refused: idempotency.KeyMissing},
			{kind: urlencoded, body: "key=%zz", refused: idempotency.KeyInvalid},
			{kind: urlencoded, body: "key=k&broken=%", refused: idempotency.KeyInvalid},
			{kind: urlencoded, body: "key=k;other=1", refused: idempotency.KeyInvalid},
			{kind: multi, body: part("key", "k"), refused: idempotency.KeyInvalid}, // no end
			{kind: multi, body: "no form", refused: idempotency.KeyInvalid},
			// no boundary
			{kind: "multipart/form-data", body: part("key", "k") + "--b--\r\n", refused: idempotency.KeyInvalid},
			{kind: "multipart/mixed; boundary=b", body: part("key", "k") + "--b--\r\n", refused: idempotency.KeyInvalid},
			{kind: "application/json", body: `{"key":"k"}`, refused: idempotency.KeyInvalid},
			{kind: "text/plain", body: "key=k", refused: idempotency.KeyInvalid},
			{kind: "", body: "key=k", refused: idempotency.KeyInvalid},
			{kind: ";;", body: "key=k", refused: idempotency.KeyInvalid},
			{kind: urlencoded, body: "key=" + strings.Repeat("k", 4096), key: strings.Repeat("k", 4096)},
			{kind: urlencoded, body: "key=" + strings.Repeat("k", 4097), refused: idempotency.KeyInvalid},
		} {
			ran := int(site.ran.Load())
			name := fmt.Sprintf("%q %.80q", c.kind, c.body)
			for i, edit := range []contentEdit{func(*http.Request) {}, contentChunked} {
				a := site.send(t, http.MethodPost, "/form?key=query", c.body, contentHeader("Content-Type", c.kind), edit)
				if c.refused != "" {
					require.Equal(t, 400, a.status, name)
					requireProblem(t, a, http.StatusBadRequest, c.refused)
					continue
				}
				require.Equal(t, 200, a.status, "%s: %s", name, a.body)
				require.Equal(t, i > 0, a.replayed(), name)
				require.Equal(t, c.key, keysOf(t, a), name)
				require.Equal(t, c.body, a.body, "the handler has the whole form")
			}
			if c.refused == "" {
				ran++
			}
			site.requireRan(t, ran)
		}
	})
	t.Run("larger than the cap", func(t *testing.T) {
		for _, opts := range [][]guardhttp.Option{nil, {guardhttp.WithFingerprint(nil)}} {
			for kind, body := range map[string]string{
				urlencoded: "key=k&other=" + strings.Repeat("o", 1000),
				multi:      part("key", "k") + part("other", strings.Repeat("o", 1000)) + "--b--\r\n",
			} {
				site := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromForm("key"), opts: append(opts, guardhttp.WithMaxBody(500))})
				for _, edit := range []contentEdit{func(*http.Request) {}, contentChunked} {
					requireProblem(t, site.send(t, http.MethodPost, "/form", body, contentHeader("Content-Type", kind), edit), http.StatusRequestEntityTooLarge, idempotency.BodyTooLarge)
				}
				site.requireRan(t, 0)
			}
		}
	})
	t.Run("that the handler parses as well", func(t *testing.T) {
		for kind, body := range map[string]string{urlencoded: "key=parsed1&other=o", multi: part("key", "parsed2") + part("other", "o") + file + "--b--\r\n"} {
			site := store.site(t, contentSetup{key: guardhttp.FromForm("key"), handler: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, r.PostFormValue("key"), r.FormValue("other"), r.FormValue("q"))
			}})
			a := site.send(t, http.MethodPost, "/form?q=q", body, contentHeader("Content-Type", kind))
			require.Regexp(t, "^parsed.oq$", a.body)
		}
	})
	t.Run("as a scope", func(t *testing.T) {
		site := store.site(t, contentSetup{handler: keysEcho, opts: []guardhttp.Option{guardhttp.WithScope(guardhttp.FromForm("tenant")),
			guardhttp.WithFingerprint(func(*http.Request, []byte) ([]byte, error) { return nil, nil })}})
		kind := contentHeader("Content-Type", urlencoded)
		first := site.post(t, "k", "tenant=a", kind)
		require.False(t, site.post(t, "k", "tenant=b", kind).replayed())
		site.post(t, "k", "x=1&tenant=a", kind).requireReplayOf(t, first)
		requireProblem(t, site.post(t, "k", "tenant=a&tenant=a", kind), 500, idempotency.Refused)
		site.requireRan(t, 2)
	})
}

func TestKeys_fromJSON(t *testing.T) {
	t.Parallel()
	invalid, absent := idempotency.KeyInvalid, idempotency.KeyMissing
	store := contentRedis(t)
	site := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromJSON("task")})
	nested := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromJSON("order", "task")})
	for _, c := range []struct {
		body    string
		key     string
		refused idempotency.Result
	}{
		// the package keys tests what a JSON object can be
		{body: `{"task":"t1"}`, key: "t1"},
		{body: `{"task":"` + strings.Repeat("k", 4096) + `"}`, key: strings.Repeat("k", 4096)},
		{body: `{"task":"` + strings.Repeat("k", 4097) + `"}`, refused: invalid},
		{body: `{"task":1.5}`, refused: invalid},
		{body: `{"task":null}`, refused: absent},
		{body: `{"task":""}`, refused: absent},
		{body: `{"task":"a","task":"b"}`, refused: invalid},
		{body: ``, refused: invalid},
		{body: `{"task":"a"`, refused: invalid},
	} {
		for s, body := range map[*contentSite]string{site: c.body, nested: `{"task":"no","order":` + c.body + `}`} {
			if s == nested && c.body == "null" {
				continue // a missing order
			}
			require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
			ran := int(s.ran.Load())
			a := s.send(t, http.MethodPost, "/json", body)
			name := fmt.Sprintf("%.100q", body)
			if c.refused != "" {
				require.Equal(t, 400, a.status, name)
				require.Contains(t, a.body, `"code":"`+string(c.refused)+`"`, name)
				s.requireRan(t, ran)
				continue
			}
			require.Equal(t, c.key, keysOf(t, a), name)
			require.Equal(t, body, a.body, "the handler has the whole body")
			s.send(t, http.MethodPost, "/json", body).requireReplayOf(t, a)
			s.requireRan(t, ran+1)
		}
	}
	for body, refused := range map[string]idempotency.Result{
		`{"order":null}`: absent, `{}`: absent, `{"task":"t"}`: absent, `{"order":{}}`: absent, `{"order":{"task":null}}`: absent,
		`{"order":"task"}`: invalid, `{"order":[]}`: invalid, `{"order":1}`: invalid,
		`{"order":{"task":"a"},"order":{"task":"b"}}`: invalid, `{"order":{"task":"a"},"Order":{}}`: invalid,
	} {
		requireProblem(t, nested.send(t, http.MethodPost, "/json", body), 400, refused)
	}
	// encoding/json, which the handler may use, would read each as the replacement character
	t.Run("what is no UTF-8", func(t *testing.T) {
		for _, body := range []string{"{\"task\":\"a\xff\"}", "{\"task\":\"a\xfe\"}", `{"task":"a\ud800"}`} {
			requireProblem(t, site.send(t, http.MethodPost, "/utf8", body), 400, invalid)
		}
		require.Equal(t, "a\ufffd", keysOf(t, site.send(t, http.MethodPost, "/utf8", "{\"task\":\"a\ufffd\"}")))
	})
	// print the same, and are not the same request
	t.Run("a text and a number", func(t *testing.T) {
		require.Equal(t, "17", keysOf(t, site.send(t, http.MethodPost, "/number", `{"task":"17"}`)))
		requireProblem(t, site.send(t, http.MethodPost, "/number", `{"task":17}`), 422, idempotency.Mismatch)
	})
	t.Run("larger than the cap", func(t *testing.T) {
		for _, opts := range [][]guardhttp.Option{nil, {guardhttp.WithFingerprint(nil)}} {
			small := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromJSON("task"), opts: append(opts, guardhttp.WithMaxBody(20))})
			require.Equal(t, "12345678", keysOf(t, small.send(t, http.MethodPost, "/json", `{"task": "12345678"}`)))
			for _, edit := range []contentEdit{func(*http.Request) {}, contentChunked} {
				requireProblem(t, small.send(t, http.MethodPost, "/json", `{"task": "123456789"}`, edit), http.StatusRequestEntityTooLarge, idempotency.BodyTooLarge)
			}
			small.requireRan(t, 1)
			require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
		}
	})
	t.Run("as a scope", func(t *testing.T) {
		scoped := store.site(t, contentSetup{handler: keysEcho, opts: []guardhttp.Option{guardhttp.WithScope(guardhttp.FromJSON("tenant"))}})
		first := scoped.post(t, "scope", `{"tenant":"a"}`)
		require.False(t, scoped.post(t, "scope", `{"tenant":"b"}`).replayed())
		scoped.post(t, "scope", `{"tenant":"a"}`).requireReplayOf(t, first)
		requireProblem(t, scoped.post(t, "scope", `{"tenant":"a","tenant":"b"}`), 500, idempotency.Refused)
		scoped.requireRan(t, 2)
	})
}

type keysUser int

type (
	keysName string
	keysUUID [16]byte
)

// String masks the value.
func (u keysUser) String() string { return "user ***" }

func TestKeys_fromTheContext(t *testing.T) {
	t.Parallel()
	type slot struct{}
	store := contentRedis(t)
	alice := keysName("alice")
	for name, c := range map[string]struct {
		value   any
		key     string
		refused idempotency.Result
		status  int
	}{
		"text":       {value: "alice", key: "alice"},
		"masked":     {value: keysUser(7), key: "7"},
		"pointer":    {value: &alice, key: "alice"},
		"ID":         {value: [12]byte{11: 1}, key: "000000000000000000000001"},
		"missing":    {value: nil, refused: idempotency.KeyMissing, status: 400},
		"empty":      {value: "", refused: idempotency.KeyMissing, status: 400},
		"named text": {value: keysName("alice"), key: "alice"},
		"integer":    {value: 17, key: "17"},
		"negative":   {value: int64(-17), key: "-17"},
		"unsigned":   {value: ^uint64(0), key: "18446744073709551615"},
		"UUID":       {value: [16]byte{0x8e, 3: 7, 15: 0xff}, key: "8e000007-0000-0000-0000-0000000000ff"},
		"named UUID": {value: keysUUID{15: 1}, key: "00000000-0000-0000-0000-000000000001"},
		"zero":       {value: 0, refused: idempotency.KeyMissing, status: 400},
		"zero user":  {value: keysUser(0), refused: idempotency.KeyMissing, status: 400},
		"zero UUID":  {value: keysUUID{}, refused: idempotency.KeyMissing, status: 400},
		"zero ID":    {value: [12]byte{}, refused: idempotency.KeyMissing, status: 400},
		"nil":        {value: (*keysName)(nil), refused: idempotency.KeyMissing, status: 400},
		"address":    {value: netip.Addr{}, refused: idempotency.Refused, status: 500},
		"nil IP":     {value: net.IP(nil), refused: idempotency.Refused, status: 500},
		"float":      {value: 17.5, refused: idempotency.Refused, status: 500},
		"bool":       {value: true, refused: idempotency.Refused, status: 500},
		"bytes":      {value: []byte("alice"), refused: idempotency.Refused, status: 500},
		"other type": {value: struct{ name string }{"alice"}, refused: idempotency.Refused, status: 500},
	} {
		t.Run(name, func(t *testing.T) {
			mount := func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
				inner := idempotent(h)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if c.value != nil {
						r = r.WithContext(context.WithValue(r.Context(), slot{}, c.value))
					}
					inner.ServeHTTP(w, r)
				})
			}
			require.NoError(t, store.rdb.FlushAll(t.Context()).Err())
			asKey := store.site(t, contentSetup{handler: keysEcho, key: guardhttp.FromContext(slot{}), mount: mount})
			asScope := store.site(t, contentSetup{handler: keysEcho, mount: mount, opts: []guardhttp.Option{guardhttp.WithScope(guardhttp.FromContext(slot{}))}})
			a := asKey.send(t, http.MethodPost, "/context", "body")
			b := asScope.post(t, "k", "body")
			if c.refused != "" {
				requireProblem(t, a, c.status, c.refused)
				requireProblem(t, b, 500, idempotency.Refused)
				require.NotContains(t, a.body+b.body, "alice")
				asKey.requireRan(t, 0)
				asScope.requireRan(t, 0)
				return
			}
			require.Equal(t, c.key, keysOf(t, a))
			require.Equal(t, "body", a.body)
			asKey.send(t, http.MethodPost, "/context", "body").requireReplayOf(t, a)
			asScope.post(t, "k", "body").requireReplayOf(t, b)
			asKey.requireRan(t, 1)
			asScope.requireRan(t, 1)
		})
	}
}

// Two tenants never get one another's answers, whatever is made of their values for display, and
// none is served without a tenant.
func TestKeys_fromTheContextAreOfOneTenant(t *testing.T) {
	t.Parallel()
	type slot struct{}
	store := contentRedis(t)
	for name, tenants := range map[string][]any{
		"masked": {keysUser(7), keysUser(8)}, "IDs": {[12]byte{1}, [12]byte{2}}, "unset IDs": {[12]byte{}, [12]byte{}},
		"addresses": {netip.Addr{}, netip.Addr{}}, "nil IPs": {net.IP(nil), net.IP(nil)}, "nil": {(*keysUser)(nil), (*keysUser)(nil)},
	} {
		var tenant atomic.Value
		site := store.site(t, contentSetup{handler: keysEcho, opts: []guardhttp.Option{guardhttp.WithScope(guardhttp.FromContext(slot{}))},
			mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
				inner := idempotent(h)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					inner.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), slot{}, tenant.Load())))
				})
			}})
		for i, value := range tenants {
			tenant.Store(value)
			require.False(t, site.post(t, name, "body").replayed(), "%s: tenant %d", name, i+1)
		}
	}
}

// FromJSON and FromForm find the body even if it was read before, and leave it to be read again.
func TestKeys_bodiesAreReadAgain(t *testing.T) {
	t.Parallel()
	body := `{"task":"t1"}`
	var before, after string
	read := func(to *string, most int64) guardhttp.KeyFunc {
		return func(r *http.Request) (string, error) {
			all, err := io.ReadAll(io.LimitReader(r.Body, most))
			*to = string(all)
			return "x", err
		}
	}
	task := guardhttp.FromJSON("task")
	for name, key := range map[string]guardhttp.KeyFunc{
		"half of it":   guardhttp.Join(read(&before, 5), task, read(&after, 100)),
		"all of it":    guardhttp.Join(read(&before, 100), task, read(&after, 100)),
		"again by us":  guardhttp.Join(task, read(&before, 5), task, task, read(&after, 100)),
		"and the form": guardhttp.Join(read(&before, 5), task, read(&before, 5), keysIgnore(guardhttp.FromForm("task")), read(&after, 100)),
	} {
		after = ""
		site := contentRedis(t).site(t, contentSetup{handler: contentEcho, key: key})
		first := site.send(t, http.MethodPost, "/again", body)
		require.Equal(t, body, first.body, name)
		require.Equal(t, body, after, name)
		site.send(t, http.MethodPost, "/again", body).requireReplayOf(t, first)
	}

	// Outside of the middleware as well, such as in a limiter of rates.
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	for range 2 {
		found, err := task(r)
		require.NoError(t, err)
		require.Equal(t, "t1", found)
	}
	rest, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, body, string(rest))
	r.Body = nil
	_, err = task(r)
	require.Error(t, err)
}

// keysIgnore calls another function, ignores its result, and returns a key.
func keysIgnore(f guardhttp.KeyFunc) guardhttp.KeyFunc {
	return func(r *http.Request) (string, error) {
		_, _ = f(r)
		return "x", nil
	}
}

// What a KeyFunc of the caller's own says about a key reaches the client if it is a *KeyError, and
// no other error does.
func TestKeys_errorsOfYourOwn(t *testing.T) {
	t.Parallel()
	store := contentRedis(t)
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
