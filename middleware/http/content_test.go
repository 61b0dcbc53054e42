package guardhttp_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// Rows 5 and 15.
func TestContent_anotherBodyIsRefusedAndLeavesTheRecord(t *testing.T) {
	t.Parallel()
	contentProtocols(t, func(t *testing.T, http2 bool) {
		t.Parallel()
		site := contentRedis(t).site(t, contentSetup{http2: http2, handler: contentEcho})
		first := site.post(t, "k", "body1")
		key, head, record := site.record(t)
		left := site.rdb.PTTL(t.Context(), key).Val()
		require.Greater(t, left, 24*time.Hour-time.Minute)
		for _, other := range []string{"body2", "", "body1 ", "body", "body1\x00", strings.Repeat("body1", 1000)} {
			again := site.post(t, "k", other)
			requireProblem(t, again, http.StatusUnprocessableEntity, idempotency.Mismatch)
			require.NotContains(t, again.body, "body1", "the first answer does not show")
			require.Equal(t, idempotency.Mismatch, site.outcome(t).Result)
		}
		requireProblem(t, site.send(t, http.MethodPost, "/things?q", "body1", contentHeader("Idempotency-Key", "k")), http.StatusUnprocessableEntity, idempotency.Mismatch)
		key2, head2, record2 := site.record(t)
		require.Equal(t, [3]string{key, head, record}, [3]string{key2, head2, record2}, "the owner's record is as it was")
		require.LessOrEqual(t, site.rdb.PTTL(t.Context(), key).Val(), left, "and ends when it did")
		site.post(t, "k", "body1").requireReplayOf(t, first)
		site.requireRan(t, 1)
	})
}

// Row 39: a client that is not authorized does not get the answer.
func TestContent_authenticationComesFirst(t *testing.T) {
	t.Parallel()
	var revoked atomic.Bool
	site := contentMemory(t).site(t, contentSetup{handler: contentEcho,
		mount: func(idempotent func(http.Handler) http.Handler, h http.Handler) http.Handler {
			inner := idempotent(h)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if revoked.Load() {
					http.Error(w, "no longer", http.StatusForbidden)
					return
				}
				inner.ServeHTTP(w, r)
			})
		}})
	first := site.post(t, "k", "secret")
	site.post(t, "k", "secret").requireReplayOf(t, first)
	revoked.Store(true)
	a := site.post(t, "k", "secret")
	require.Equal(t, http.StatusForbidden, a.status)
	require.NotContains(t, a.body, "secret")
	require.False(t, a.replayed())
	site.requireRan(t, 1)
}

// What makes a request the same as the first one of its key.
func TestContent_fingerprints(t *testing.T) {
	t.Parallel()
	refusal := errors.New("a secret reason")
	own := guardhttp.WithFingerprint(func(_ *http.Request, body []byte) ([]byte, error) {
		if string(body) == "bad" {
			return nil, refusal
		}
		return bytes.ToLower(body), nil
	})
	reject := idempotency.WithMode(idempotency.Reject)
	for name, c := range map[string]struct {
		opts        []guardhttp.Option
		query, body string // of the second request; those of the first one are "?ab" and "c"
		want        idempotency.Result
	}{
		"the same":                        {nil, "?ab", "c", idempotency.Replayed},
		"another query":                   {nil, "?%61b", "c", idempotency.Mismatch},
		"a query is not a body":           {nil, "?a", "bc", idempotency.Mismatch},
		"no query":                        {nil, "", "abc", idempotency.Mismatch},
		"your own, the same":              {[]guardhttp.Option{own}, "?x", "C", idempotency.Replayed},
		"your own, another":               {[]guardhttp.Option{own}, "?ab", "d", idempotency.Mismatch},
		"your own, an empty one is one":   {[]guardhttp.Option{own}, "?ab", "", idempotency.Mismatch},
		"your own, an error":              {[]guardhttp.Option{own}, "?ab", "bad", idempotency.BodyInvalid},
		"none":                            {[]guardhttp.Option{guardhttp.WithFingerprint(nil)}, "?x", "other", idempotency.Replayed},
		"Reject has none":                 {[]guardhttp.Option{reject}, "?x", "other", idempotency.Done},
		"Reject takes one if it is given": {[]guardhttp.Option{reject, own}, "?ab", "d", idempotency.Mismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := contentMemory(t).site(t, contentSetup{handler: contentEcho, opts: c.opts})
			key := contentHeader("Idempotency-Key", "k")
			require.Equal(t, "c", site.send(t, http.MethodPost, "/f?ab", "c", key).body)
			again := site.send(t, http.MethodPost, "/f"+c.query, c.body, key)
			o := site.outcome(t)
			require.Equal(t, c.want, o.Result)
			require.NotContains(t, again.body, "secret")
			if c.want == idempotency.BodyInvalid {
				require.ErrorIs(t, o.Err, refusal)
			}
			site.requireRan(t, 1)
		})
	}
}

// Rows 3, 4 and 37: which requests are guarded, by their method and their key. The store is not
// asked for others.
func TestContent_methods(t *testing.T) {
	t.Parallel()
	none := []string{}
	chosen := []guardhttp.Option{guardhttp.WithMethods("GET", "POST")}
	optional := []guardhttp.Option{idempotency.WithOptionalKey()}
	untouched, replayed, missing, invalid := idempotency.Untouched, idempotency.Replayed, idempotency.KeyMissing, idempotency.KeyInvalid
	for name, c := range map[string]struct {
		opts    []guardhttp.Option
		methods string
		keys    []string           // of the header
		want    idempotency.Result // of the second request
	}{
		"they change nothing":            {nil, "GET HEAD OPTIONS TRACE QUERY", []string{"k"}, untouched},
		"they change nothing, a bad key": {nil, "GET", []string{`"`}, untouched},
		"they change something":          {nil, "POST PUT PATCH DELETE LOCK post", []string{"k"}, replayed},
		"they need a key":                {nil, "POST PATCH", none, missing},
		"they need none":                 {nil, "PUT DELETE LOCK", none, untouched},
		"they need none, a bad key":      {nil, "PUT DELETE LOCK", []string{`"`}, invalid},
		"chosen":                         {chosen, "GET POST", []string{"k"}, replayed},
		"chosen, without a key":          {chosen, "GET", none, missing},
		"not chosen":                     {chosen, "PUT", []string{"k"}, untouched},
		"optional":                       {optional, "POST", []string{"k"}, replayed},
		"optional, without a key":        {optional, "POST", none, untouched},
		"optional, an empty key":         {optional, "POST", []string{""}, invalid},
		"optional, a bad key":            {optional, "POST", []string{"a b"}, invalid},
		"two keys":                       {nil, "POST", []string{"a", "b"}, invalid},
		"one key twice":                  {nil, "POST", []string{"a", "a"}, invalid},
	} {
		for method := range strings.FieldsSeq(c.methods) {
			t.Run(name+", "+method, func(t *testing.T) {
				t.Parallel()
				store := contentMemory(t)
				site := store.site(t, contentSetup{opts: c.opts, handler: func(w http.ResponseWriter, r *http.Request) {
					fmt.Fprint(w, r.Method, idempotency.Key(r.Context()))
				}})
				var answers [2]httpAnswer
				for i := range answers {
					answers[i] = site.send(t, method, "/m", "", contentHeader("Idempotency-Key", c.keys...))
				}
				o := site.outcome(t)
				require.Equal(t, c.want, o.Result)
				switch c.want {
				case replayed:
					require.Equal(t, method+"k", answers[0].body)
					answers[1].requireReplayOf(t, answers[0])
					site.requireRan(t, 1)
					return
				case untouched:
					require.Equal(t, map[bool]string{true: method}[method != "HEAD"], answers[1].body)
					site.requireRan(t, 2)
				default:
					requireProblem(t, answers[1], http.StatusBadRequest, c.want)
					require.Equal(t, c.want == missing, errors.Is(o.Err, idempotency.ErrNoKey))
					site.requireRan(t, 0)
				}
				require.Zero(t, store.asked())
			})
		}
	}
}

// Rows 23, 24 and 25: a scope keeps its answers, and one that cannot be found out is refused.
func TestContent_scopes(t *testing.T) {
	t.Parallel()
	whoami := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "for ", r.Header.Get("X-Tenant")) }
	t.Run("tenants have answers of their own", func(t *testing.T) {
		site := contentMemory(t).site(t, contentSetup{handler: whoami})
		pairs := [][2]string{{"a", "k"}, {"b", "k"}, {"a", "bc"}, {"ab", "c"}, {"a:b", "c"}, {"a", "b:c"}, {"a|b", "c"}, {"a", "b|c"}, {"a/b", "c"}, {"a", "b/c"},
			{"once", "pathPOST"}, {"{a}", "c"}, {"a", "{c}"}}
		for i, p := range pairs {
			first := site.post(t, p[1], "", contentHeader("X-Tenant", p[0]), contentHeader("Authorization", "Bearer one"))
			require.Equal(t, "for "+p[0], first.body)
			site.requireRan(t, i+1)
			site.post(t, p[1], "", contentHeader("X-Tenant", p[0]), contentHeader("Authorization", "Bearer two")).requireReplayOf(t, first)
		}
	})
	t.Run("global keys are those of all", func(t *testing.T) {
		site := contentMemory(t).site(t, contentSetup{handler: whoami, global: true})
		first := site.post(t, "global", "", contentHeader("X-Tenant", "a"))
		site.post(t, "global", "", contentHeader("X-Tenant", "b")).requireReplayOf(t, first)
	})
	boom := errors.New("the secret database is down")
	fails := func(*http.Request) (string, error) { return "shared", boom }
	empty := func(*http.Request) (string, error) { return "", nil }
	for name, c := range map[string]struct{ key, scope guardhttp.KeyFunc }{
		"no scope":               {scope: empty},
		"a scope that fails":     {scope: fails},
		"no header":              {scope: guardhttp.FromHeader("X-Nobody")},
		"no context":             {scope: guardhttp.FromContext("nothing")},
		"no field":               {scope: guardhttp.FromJSON("tenant")},
		"no form":                {scope: guardhttp.FromForm("tenant")},
		"a part that is missing": {scope: guardhttp.Join(guardhttp.FromHeader("X-Tenant"), guardhttp.FromHeader("X-Nobody"))},
		"a part that is empty":   {scope: guardhttp.Join(guardhttp.FromHeader("X-Tenant"), empty)},
		"a key that fails":       {key: fails, scope: tenant},
	} {
		for _, opts := range [][]guardhttp.Option{nil, {idempotency.WithOptionalKey()}} {
			t.Run(fmt.Sprint(name, ", options: ", len(opts)), func(t *testing.T) {
				store := contentMemory(t)
				site := store.site(t, contentSetup{handler: whoami, key: c.key, opts: append(opts, guardhttp.WithScope(c.scope))})
				a := site.post(t, "k", "{}")
				requireProblem(t, a, http.StatusInternalServerError, idempotency.Refused)
				require.NotContains(t, a.body, "database")
				require.NotContains(t, a.body, "X-Nobody")
				require.Error(t, site.outcome(t).Err)
				site.requireRan(t, 0)
				require.Zero(t, store.asked())
			})
		}
	}
}
