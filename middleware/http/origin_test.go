package guardhttp_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// originCORS is a middleware for CORS, as common ones are: it answers to the origin of the request.
func originCORS(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		if origin := r.Header.Get("Origin"); slices.Contains([]string{"https://a.example", "https://b.example"}, origin) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Allow-Credentials", "true")
			h.Set("Access-Control-Expose-Headers", "Idempotency-Replayed")
			h.Set("Timing-Allow-Origin", origin)
		}
		next.ServeHTTP(w, r)
	})
}

// originAny allows every origin.
func originAny(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		next.ServeHTTP(w, r)
	})
}

// A replay never says that another origin than that of its request may read it. Outside, the
// middleware for CORS answers to each request. Inside, a replay to the first origin has its
// headers, and one to another origin has none, which hooks are notified of.
func TestOrigin_ofAReplay(t *testing.T) {
	t.Parallel()
	const a, b, evil = "https://a.example", "https://b.example", "https://evil.example"
	type again struct {
		origin, allowed string
		reported        bool
	}
	for name, c := range map[string]struct {
		inside, outside func(http.Handler) http.Handler
		first           string
		again           []again
	}{
		"outside":                   {nil, originCORS, a, []again{{a, a, false}, {b, b, false}, {evil, "", false}, {"", "", false}}},
		"outside, not of a browser": {nil, originCORS, "", []again{{a, a, false}, {evil, "", false}}},
		"inside":                    {originCORS, nil, a, []again{{a, a, false}, {b, "", true}, {evil, "", true}, {"", "", false}}},
		"inside, not of a browser":  {originCORS, nil, "", []again{{a, "", false}, {evil, "", false}}},
		"inside, for every origin":  {originAny, nil, a, []again{{a, "*", false}, {b, "*", false}, {"", "*", false}}},
		"inside and outside":        {originCORS, originCORS, a, []again{{a, a, false}, {b, b, false}, {evil, "", false}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var refused []error
			g := lifeGuard(t, memory.New(), guard.WithHook(guard.Hook{Outcome: func(_ context.Context, o guard.Outcome) { refused = append(refused, o.Refused) }}))
			idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
			require.NoError(t, err)
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
			if c.inside != nil {
				h = c.inside(h)
			}
			if h = idempotent(h); c.outside != nil {
				h = c.outside(h)
			}
			require.Equal(t, http.StatusCreated, call(h, "/", "Origin", c.first).Code)
			for _, retry := range c.again {
				w := call(h, "/", "Origin", retry.origin)
				require.Equal(t, "true", w.Header().Get("Idempotency-Replayed"))
				require.Equal(t, retry.allowed, strings.Join(w.Header().Values("Access-Control-Allow-Origin"), "; "), retry.origin)
				if retry.allowed == "" {
					for name := range w.Header() {
						require.NotContains(t, name, "Access-Control")
						require.NotEqual(t, "Timing-Allow-Origin", name)
					}
				}
				require.Equal(t, retry.reported, refused[len(refused)-1] != nil, "%s: %v", retry.origin, refused)
			}
		})
	}
}

// What outer middleware varies by for a retry stays beside what the handler varies by.
func TestOrigin_varyOfARetry(t *testing.T) {
	t.Parallel()
	idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
	require.NoError(t, err)
	inner := idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Add("Vary", "Accept") }))
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			w.Header().Add("Vary", "Origin")
		}
		inner.ServeHTTP(w, r)
	})
	require.Equal(t, []string{"Accept"}, call(h, "/").Header().Values("Vary"))
	require.ElementsMatch(t, []string{"Origin", "Accept"}, call(h, "/", "Origin", "https://a.example").Header().Values("Vary"))
}
