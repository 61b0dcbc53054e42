package guardhttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
)

// optionsNamed returns the settings that an error names.
func optionsNamed(t *testing.T, err error) []string {
	t.Helper()
	var one *guard.SettingError
	require.ErrorAs(t, err, &one)
	var named []string
	var walk func(error)
	walk = func(err error) {
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range several.Unwrap() {
				walk(err)
			}
			return
		}
		var setting *guard.SettingError
		require.ErrorAs(t, err, &setting)
		require.NotEmpty(t, setting.Reason)
		require.Contains(t, err.Error(), setting.Setting)
		named = append(named, setting.Setting)
	}
	walk(err)
	return named
}

func optionsFingerprint(*http.Request, []byte) ([]byte, error) { return nil, nil }

func TestOptions_thatCannotWork(t *testing.T) {
	t.Parallel()
	g := lifeGuard(t, memory.New())
	key := func(id string, size int) idempotency.EncryptionKey {
		return idempotency.EncryptionKey{ID: id, Secret: []byte(strings.Repeat("\xa7", size))}
	}
	scope := guardhttp.WithScope(tenant)
	for name, c := range map[string]struct {
		setting string
		opts    []guardhttp.Option // added to a scope
	}{
		"a nil option":                     {"Option", []guardhttp.Option{nil}},
		"a nil scope":                      {"WithScope", []guardhttp.Option{guardhttp.WithScope(nil)}},
		"a scope and global keys":          {"WithGlobalKeys", []guardhttp.Option{idempotency.WithGlobalKeys()}},
		"a group without a name":           {"WithGroup", []guardhttp.Option{idempotency.WithGroup("")}},
		"no methods":                       {"WithMethods", []guardhttp.Option{guardhttp.WithMethods()}},
		"an empty method":                  {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("")}},
		"a method in small letters":        {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("POST", "put")}},
		"a method with a space":            {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("POST PUT")}},
		"HEAD":                             {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("HEAD")}},
		"OPTIONS":                          {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("POST", "OPTIONS")}},
		"TRACE":                            {"WithMethods", []guardhttp.Option{guardhttp.WithMethods("TRACE")}},
		"no such mode":                     {"WithMode", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive + 1)}},
		"a negative wait":                  {"WithWait", []guardhttp.Option{idempotency.WithWait(-time.Second)}},
		"no waiters":                       {"WithMaxWaiters", []guardhttp.Option{idempotency.WithMaxWaiters(0, 0)}},
		"no waiters for a key":             {"WithMaxWaiters", []guardhttp.Option{idempotency.WithMaxWaiters(5, 0)}},
		"more for a key than in all":       {"WithMaxWaiters", []guardhttp.Option{idempotency.WithMaxWaiters(1, 2)}},
		"no waiters for a scope":           {"WithMaxScopeWaiters", []guardhttp.Option{idempotency.WithMaxScopeWaiters(0)}},
		"more for a scope than in all":     {"WithMaxScopeWaiters", []guardhttp.Option{idempotency.WithMaxScopeWaiters(1025)}},
		"no records of a scope":            {"WithMaxScopeRecords", []guardhttp.Option{idempotency.WithMaxScopeRecords(0)}},
		"more records than can be counted": {"WithMaxScopeRecords", []guardhttp.Option{idempotency.WithMaxScopeRecords(100_000_001)}},
		"records that are not kept":        {"WithMaxScopeRecords", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive), idempotency.WithMaxScopeRecords(1)}},
		"a fingerprint to forget":          {"WithFingerprint", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive), guardhttp.WithFingerprint(optionsFingerprint)}},
		"a negative body":                  {"WithMaxBody", []guardhttp.Option{guardhttp.WithMaxBody(-1)}},
		"a body beyond all bounds":         {"WithMaxBody", []guardhttp.Option{guardhttp.WithMaxBody(1<<40 + 1)}},
		"a negative answer":                {"WithMaxAnswer", []guardhttp.Option{idempotency.WithMaxAnswer(-1)}},
		"an answer beyond all bounds":      {"WithMaxAnswer", []guardhttp.Option{idempotency.WithMaxAnswer((768 << 10) + 1)}},
		"a nil policy":                     {"WithPolicy", []guardhttp.Option{guardhttp.WithPolicy(nil)}},
		"no header":                        {"WithoutHeaders", []guardhttp.Option{guardhttp.WithoutHeaders()}},
		"a header that is none":            {"WithoutHeaders", []guardhttp.Option{guardhttp.WithoutHeaders("X-A", "X B")}},
		"a header that is empty":           {"WithoutHeaders", []guardhttp.Option{guardhttp.WithoutHeaders("")}},
		"no retention":                     {"WithOnce", []guardhttp.Option{idempotency.WithOnce(0)}},
		"a negative retention":             {"WithOnce", []guardhttp.Option{idempotency.WithOnce(-time.Hour)}},
		"a retention of a lifetime":        {"WithOnce", []guardhttp.Option{idempotency.WithOnce(80 * 365 * 24 * time.Hour)}},
		"no time":                          {"WithMaxHold", []guardhttp.Option{idempotency.WithMaxHold(0)}},
		"a negative time":                  {"WithMaxHold", []guardhttp.Option{idempotency.WithMaxHold(-1)}},
		"at once":                          {"WithRetryAfter", []guardhttp.Option{idempotency.WithRetryAfter(0)}},
		"an empty page":                    {"WithDocs", []guardhttp.Option{guardhttp.WithDocs("")}},
		"a relative page":                  {"WithDocs", []guardhttp.Option{guardhttp.WithDocs("/docs/keys")}},
		"a page with a fragment":           {"WithDocs", []guardhttp.Option{guardhttp.WithDocs("https://docs.example/keys#top")}},
		"a page that ends the Link":        {"WithDocs", []guardhttp.Option{guardhttp.WithDocs(`https://docs.example/>; rel="x`)}},
		"a page with a space":              {"WithDocs", []guardhttp.Option{guardhttp.WithDocs("https://docs.example/a b")}},
		"a page with a line break":         {"WithDocs", []guardhttp.Option{guardhttp.WithDocs("https://docs.example/\r\nX-A: b")}},
		"nil problems":                     {"WithProblems", []guardhttp.Option{guardhttp.WithProblems(nil)}},
		"no key to encrypt with":           {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption()}},
		"a key without an ID":              {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("", 32))}},
		"a key with a long ID":             {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key(strings.Repeat("i", 65), 32))}},
		"a key without a secret":           {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("a", 0))}},
		"a key with a short secret":        {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("a", 15))}},
		"a key with a long secret":         {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("a", 33))}},
		"a bad key behind a good one":      {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("a", 32), key("b", 31))}},
		"two keys with one ID":             {"WithEncryption", []guardhttp.Option{idempotency.WithEncryption(key("a", 32), key("a", 16))}},
		"encrypting what is not kept":      {"WithEncryption", []guardhttp.Option{idempotency.WithMode(idempotency.Exclusive), idempotency.WithEncryption(key("a", 32))}},
		"a long name":                      {"WithName", []guardhttp.Option{idempotency.WithLease(guard.WithName(strings.Repeat("n", 129)))}},
		"a lease that is too short":        {"WithTTL", []guardhttp.Option{idempotency.WithLease(guard.WithTTL(1))}},
		"a lease with a label of a MB":     {"WithLabel", []guardhttp.Option{idempotency.WithLease(guard.WithLabel(strings.Repeat("l", 1<<20)))}},
		"a lease with a nil option":        {"Option", []guardhttp.Option{idempotency.WithLease(nil)}},
		"a lease that is held too little":  {"WithMinHold", []guardhttp.Option{idempotency.WithLease(guard.WithMinHold(-1))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, append([]guardhttp.Option{scope}, c.opts...)...)
			require.Nil(t, idempotent)
			require.Equal(t, []string{c.setting}, slices.Compact(optionsNamed(t, err)))
			require.NotContains(t, err.Error(), "\xa7", "a secret does not show")
		})
	}
	for name, c := range map[string]struct {
		setting string
		guard   *guard.Guard
		key     guardhttp.KeyFunc
		opts    []guardhttp.Option
	}{
		"no guard": {"guard", nil, guardhttp.IdempotencyKey, []guardhttp.Option{scope}},
		"no key":   {"key", g, nil, []guardhttp.Option{scope}},
		"no scope": {"WithScope", g, guardhttp.IdempotencyKey, nil},
	} {
		t.Run(name, func(t *testing.T) {
			idempotent, err := guardhttp.New(c.guard, c.key, c.opts...)
			require.Nil(t, idempotent)
			require.Equal(t, []string{c.setting}, optionsNamed(t, err))
		})
	}
}

func TestOptions_allThatCannotWorkAreNamed(t *testing.T) {
	t.Parallel()
	_, err := guardhttp.New(nil, nil, nil, guardhttp.WithMaxBody(-1), idempotency.WithOnce(0), guardhttp.WithDocs("x"), idempotency.WithEncryption(),
		idempotency.WithMode(77), guardhttp.WithMethods("get", "HEAD"))
	require.ElementsMatch(t, []string{"guard", "key", "Option", "WithScope", "WithMaxBody", "WithOnce", "WithDocs", "WithEncryption", "WithMode",
		"WithMethods", "WithMethods"}, optionsNamed(t, err))
}

// Also those that are the lease's.
func TestOptions_thoseOfTheLeaseAreNamedWithTheOthers(t *testing.T) {
	t.Parallel()
	_, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), guardhttp.WithMaxBody(-1), idempotency.WithLease(guard.WithName("\x00")),
		idempotency.WithLease(guard.WithTTL(1)))
	require.Subset(t, optionsNamed(t, err), []string{"WithMaxBody", "WithName"})
}

// Everything at its bounds, and the store is not asked: it is not there.
func TestOptions_thatWork(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	g, err := guard.New(single.New(rdb), guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	secret := []byte(strings.Repeat("s", 16))
	for name, opts := range map[string][]guardhttp.Option{
		"global keys": {idempotency.WithGlobalKeys()},
		"lowest": {guardhttp.WithScope(tenant), idempotency.WithWait(1), idempotency.WithMaxWaiters(1, 1), idempotency.WithMaxScopeWaiters(1), idempotency.WithMaxScopeRecords(1), guardhttp.WithMaxBody(0), idempotency.WithMaxAnswer(0),
			idempotency.WithOnce(time.Millisecond), idempotency.WithMaxHold(1), idempotency.WithRetryAfter(1), guardhttp.WithMethods("GET"),
			idempotency.WithEncryption(idempotency.EncryptionKey{ID: "1", Secret: secret})},
		"highest": {guardhttp.WithScope(tenant), idempotency.WithWait(time.Hour), idempotency.WithMaxWaiters(1<<30, 1<<30), idempotency.WithMaxScopeWaiters(1 << 30), idempotency.WithMaxScopeRecords(100_000_000), guardhttp.WithMaxBody(1 << 40),
			idempotency.WithMaxAnswer(768 << 10), idempotency.WithOnce(9 * 365 * 24 * time.Hour), idempotency.WithMaxHold(1 << 60), idempotency.WithRetryAfter(1 << 60),
			guardhttp.WithMethods("POST", "QUERY", "PROPFIND", "M-SEARCH"),
			idempotency.WithEncryption(idempotency.EncryptionKey{ID: strings.Repeat("i", 64), Secret: append(secret, secret...)}, idempotency.EncryptionKey{ID: "2", Secret: append(secret, secret[:8]...)})},
		"reject":    {guardhttp.WithScope(tenant), idempotency.WithMode(idempotency.Reject), guardhttp.WithFingerprint(optionsFingerprint)},
		"exclusive": {guardhttp.WithScope(tenant), idempotency.WithMode(idempotency.Exclusive), guardhttp.WithFingerprint(nil)},
		"others": {guardhttp.WithScope(tenant), idempotency.WithOptionalKey(), idempotency.WithRerun(), idempotency.WithFailOpen(), idempotency.WithClientCancel(),
			idempotency.WithShadow(), idempotency.WithGroup("g:{}"), idempotency.WithLease(guard.WithName("n")), guardhttp.WithPolicy(keepAll), idempotency.WithObserver(func(context.Context, idempotency.Outcome) {}),
			guardhttp.WithDocs("https://docs.example/keys?lang=en&v=1"), idempotency.WithLease(guard.WithTTL(time.Minute)), idempotency.WithLease()},
	} {
		idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, opts...)
		require.NoError(t, err, name)
		require.PanicsWithValue(t, "guardhttp: the handler must not be nil", func() { idempotent(nil) })
	}
}

// What the caller does with its slice afterwards is of no account.
func TestOptions_methodsAreCopied(t *testing.T) {
	t.Parallel()
	methods := []string{http.MethodPost, http.MethodPut}
	idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), guardhttp.WithMethods(methods...))
	require.NoError(t, err)
	methods[0] = http.MethodGet
	ran := 0
	h := idempotent(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ }))
	for range 2 {
		call(h, "/a")
	}
	require.Equal(t, 1, ran, "POST still needs a key")
}

// One middleware wraps several handlers, and a nil request body is an empty one.
func TestOptions_oneMiddlewareForSeveralHandlers(t *testing.T) {
	t.Parallel()
	idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys())
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, path := range []string{"/a", "/b"} {
		mux.Handle("POST "+path, idempotent(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte("at " + path + " " + idempotency.Key(r.Context())))
		})))
	}
	for range 2 {
		require.Equal(t, "at /a k", call(mux, "/a").Body.String())
		require.Equal(t, "at /b k", call(mux, "/b").Body.String())
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a", nil)
	r.Body = nil
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	require.Equal(t, "true", w.Header().Get("Idempotency-Replayed"))
}

func TestOptions_policies(t *testing.T) {
	t.Parallel()
	for status := 200; status < 600; status++ {
		final := status < 500 && !slices.Contains([]int{401, 403, 407, 408, 421, 423, 425, 429, 499}, status)
		require.Equal(t, final, guardhttp.KeepFinal(status, nil), "%d", status)
		require.True(t, keepAll(status, nil))
	}

	var seen http.Header
	idempotent, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(),
		guardhttp.WithPolicy(func(status int, header http.Header) bool {
			seen = header
			return status != http.StatusAccepted
		}))
	require.NoError(t, err)
	ran, status := 0, http.StatusAccepted
	h := idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ran++
		w.Header().Set("X-Policy", "look")
		w.WriteHeader(status)
	}))
	for range 2 {
		call(h, "/a")
	}
	require.Equal(t, 2, ran, "not kept")
	require.Equal(t, "look", seen.Get("X-Policy"))
	status = http.StatusServiceUnavailable
	for range 2 {
		require.Equal(t, status, call(h, "/a").Code)
	}
	require.Equal(t, 3, ran, "kept")
}

// The zero values that the tables call defaults mean off.
func TestOptions_zeroIsOff(t *testing.T) {
	t.Parallel()
	_, err := guardhttp.New(lifeGuard(t, memory.New()), guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(),
		idempotency.WithWait(time.Second), idempotency.WithWait(0), idempotency.WithLease(guard.WithName("claim")), idempotency.WithLease(guard.WithName("")))
	require.NoError(t, err)
}
