package guardhttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

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

// FromJSON leaves the body to be read again, also outside of the middleware, such as in a limiter
// of rates.
func TestKeys_fromJSONLeavesTheBody(t *testing.T) {
	t.Parallel()
	body := `{"task":"t1"}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
	for range 2 {
		found, err := guardhttp.FromJSON("task")(r)
		require.NoError(t, err)
		require.Equal(t, "t1", found)
	}
	rest, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, body, string(rest))
	r.Body = nil
	_, err = guardhttp.FromJSON("task")(r)
	require.Error(t, err)
}

// A key may be a part of the body: the package keys tests what a JSON object, and a value, can be.
func TestKeys_fromJSON(t *testing.T) {
	t.Parallel()
	invalid, absent := idempotency.KeyInvalid, idempotency.KeyMissing
	site := contentMemory(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.FromJSON("order", "task"), opts: []guardhttp.Option{guardhttp.WithMaxBody(5000)}})
	for body, want := range map[string]struct {
		key     string
		refused idempotency.Result
	}{
		`{"order":{"task":"t1"}}`:                                {key: "t1"},
		`{"task":"no","order":{"task":17}}`:                      {key: "17"},
		`{"order":{"task":"` + strings.Repeat("k", 4096) + `"}}`: {key: strings.Repeat("k", 4096)},
		`{"order":{"task":"` + strings.Repeat("k", 4097) + `"}}`: {refused: invalid},
		`{"order":{"task":1.5}}`:                                 {refused: invalid},
		`{"order":{"task":null}}`:                                {refused: absent},
		`{"order":{"task":""}}`:                                  {refused: absent},
		`{"order":null}`:                                         {refused: absent},
		`{"task":"t"}`:                                           {refused: absent},
		`{"order":[]}`:                                           {refused: invalid},
		`{"order":{"task":"a"},"Order":{}}`:                      {refused: invalid},
		`{"order":{"task":"a","task":"b"}}`:                      {refused: invalid},
		`{"order":{"task":"a"`:                                   {refused: invalid},
		"{\"order\":{\"task\":\"a\xff\"}}":                       {refused: invalid},
		``:                                                       {refused: invalid},
		`{"order":{"task":"a"},"other":"` + strings.Repeat("o", 5000) + `"}`: {refused: idempotency.BodyTooLarge},
	} {
		a := site.send(t, http.MethodPost, "/json", body)
		if want.refused != "" {
			require.Equal(t, string(want.refused), a.header.Get("Idempotency-Refused"), "%.100q", body)
			continue
		}
		require.Equal(t, want.key, keysOf(t, a), "%.100q", body)
		require.Equal(t, body, a.body, "the handler has the whole body")
		site.send(t, http.MethodPost, "/json", body).requireReplayOf(t, a)
	}
	site.requireRan(t, 3)
	requireProblem(t, site.send(t, http.MethodPost, "/json", `{"order":{"task":"17"}}`), 422, idempotency.Mismatch)
}

// Keys and scopes of a context are the values themselves, and not what is made of them for display.
// No tenant gets the answer of another, and none is served without a tenant.
func TestKeys_fromTheContext(t *testing.T) {
	t.Parallel()
	type slot struct{}
	for name, c := range map[string]struct {
		value, other any // two tenants
		key          string
		refused      idempotency.Result
	}{
		"text":       {value: "alice", other: "bob", key: "alice"},
		"masked":     {value: keysMasked(7), other: keysMasked(8), key: "7"},
		"UUID":       {value: [16]byte{0x8e, 15: 0xff}, other: [16]byte{1}, key: "8e000000-0000-0000-0000-0000000000ff"},
		"missing":    {refused: idempotency.KeyMissing},
		"zero":       {value: keysMasked(0), refused: idempotency.KeyMissing},
		"nil":        {value: (*keysMasked)(nil), refused: idempotency.KeyMissing},
		"address":    {value: netip.Addr{}, refused: idempotency.Refused},
		"other type": {value: struct{ name string }{"alice"}, refused: idempotency.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tenant any
			mount := func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					idempotent(h).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), slot{}, tenant)))
				})
			}
			asKey := contentMemory(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.FromContext(slot{}), mount: mount})
			asScope := contentMemory(t).site(t, contentSetup{handler: keysEcho, mount: mount, opts: []guardhttp.Option{guardhttp.WithScope(guardhttp.FromContext(slot{}))}})
			tenant = c.value
			a, b := asKey.send(t, http.MethodPost, "/context", "body"), asScope.post(t, "k", "body")
			if c.refused != "" {
				requireProblem(t, a, map[idempotency.Result]int{idempotency.KeyMissing: 400, idempotency.Refused: 500}[c.refused], c.refused)
				requireProblem(t, b, 500, idempotency.Refused)
				require.NotContains(t, a.body+b.body, "alice")
				return
			}
			require.Equal(t, c.key, keysOf(t, a))
			asKey.send(t, http.MethodPost, "/context", "body").requireReplayOf(t, a)
			asScope.post(t, "k", "body").requireReplayOf(t, b)
			tenant = c.other
			require.False(t, asKey.send(t, http.MethodPost, "/context", "body").replayed())
			require.False(t, asScope.post(t, "k", "body").replayed())
		})
	}
}

// A keysMasked has a text that is the same for all.
type keysMasked int

func (keysMasked) String() string { return "***" }

// A user may claim each coupon once: the parts of a key do not run together, and each must be
// there.
func TestKeys_joined(t *testing.T) {
	t.Parallel()
	site := contentMemory(t).site(t, contentSetup{handler: keysEcho, key: guardhttp.Join(guardhttp.FromHeader("X-User"), guardhttp.FromJSON("coupon"))})
	post := func(user, body string) httpAnswer {
		return site.send(t, http.MethodPost, "/claim", body, contentHeader("X-User", user))
	}
	first := post("u1", `{"coupon":"1"}`)
	require.Regexp(t, "^[0-9a-f]{64}$", keysOf(t, first))
	post("u1", `{"coupon":"1"}`).requireReplayOf(t, first)
	for _, other := range [][2]string{{"u", "11"}, {"u1,", "1"}, {"u1", ",1"}, {"1", "u1"}} {
		require.False(t, post(other[0], `{"coupon":"`+other[1]+`"}`).replayed(), "%q", other)
	}
	site.requireRan(t, 5)
	requireProblem(t, site.send(t, http.MethodPost, "/claim", `{"coupon":1}`), 400, idempotency.KeyMissing)
	requireProblem(t, post("u1", `{}`), 400, idempotency.KeyMissing)
	requireProblem(t, post("u1", `{`), 400, idempotency.KeyInvalid)

	r := httptest.NewRequest(http.MethodPost, "/", http.NoBody)
	a, boom := func(*http.Request) (string, error) { return "a", nil }, errors.New("boom")
	seen := map[string]bool{}
	for _, f := range []guardhttp.KeyFunc{
		guardhttp.Join(a), guardhttp.Join(a, a), guardhttp.Join(a, a, a), guardhttp.Join(guardhttp.Join(a, a), a), guardhttp.Join(a, guardhttp.Join(a, a)),
	} {
		key, err := f(r)
		require.NoError(t, err)
		seen[key] = true
	}
	require.Len(t, seen, 5)
	_, err := guardhttp.Join(a, func(*http.Request) (string, error) { return "", nil })(r)
	require.ErrorIs(t, err, idempotency.ErrNoKey)
	_, err = guardhttp.Join(a, func(*http.Request) (string, error) { return "text", boom })(r)
	require.ErrorIs(t, err, boom)
}
