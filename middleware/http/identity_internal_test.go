package guardhttp

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/idempotent"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

func TestProblem_secondsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		1: 1, time.Millisecond: 1, time.Second - 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Second: 90, 24*time.Hour - 1: 86400,
		0: 1, -time.Hour: 1,
	} {
		require.Equal(t, want, seconds(d), "%v", d)
	}
}

// Fingerprints, and keys of the store, of what is not the same are not the same.
func TestKeys_identity(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	one := func(what string, m *middleware, scope, key, method, target string) {
		t.Helper()
		r, err := http.NewRequest(method, "http://a"+target, http.NoBody)
		require.NoError(t, err)
		r.RequestURI = target
		id := m.identity(scope, key, "", r)
		require.Regexp(t, "^http:[A-Za-z0-9_-]{43}$", id)
		require.Equal(t, id, m.identity(scope, key, "", r))
		require.Empty(t, seen[id], "%s is %s", what, seen[id])
		seen[id] = what
	}
	of := func() *middleware {
		return &middleware{settings: settings{Settings: idempotent.Defaults(idempotent.HTTP)}}
	}
	plain, grouped, other := of(), of(), of()
	grouped.Group, other.Group = "g", "h"
	exclusive, both := of(), of()
	exclusive.Mode, both.Mode, both.Group = idempotency.Exclusive, idempotency.Exclusive, "g"
	rewritten := func(what, sent, became string) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, "http://a"+became, http.NoBody)
		require.NoError(t, err)
		r.RequestURI = sent
		id := plain.identity("s", "k", "", r)
		require.Empty(t, seen[id], "%s is %s", what, seen[id])
		seen[id] = what
	}
	rewritten("one path of two", "/front", "/a/b")
	rewritten("another path of two", "/front", "/a%2Fb")
	rewritten("two paths of one, the first", "/a/b", "/back")
	rewritten("two paths of one, the second", "/a%2Fb", "/back")
	r, err := http.NewRequest(http.MethodPost, "http://a/p", http.NoBody)
	require.NoError(t, err)
	r.RequestURI = "/p"
	seen[plain.identity("s", "k", "a.example.com", r)] = "a host"
	seen[plain.identity("s", "k", "b.example.com", r)] = "another host"
	one("plain", plain, "s", "k", "POST", "/p")
	one("another scope", plain, "S", "k", "POST", "/p")
	one("another key", plain, "s", "K", "POST", "/p")
	one("another method", plain, "s", "k", "PUT", "/p")
	one("another path", plain, "s", "k", "POST", "/P")
	one("a path in the key", plain, "s", "/pk", "POST", "/")
	one("scope and key swapped", plain, "k", "s", "POST", "/p")
	one("no scope", plain, "", "k", "POST", "/p")
	one("scope runs into the key", plain, "sk", "", "POST", "/p")
	one("encoded", plain, "s", "k", "POST", "/%2Fp")
	one("not encoded", plain, "s", "k", "POST", "//p")
	one("grouped", grouped, "s", "k", "POST", "/p")
	one("another group", other, "s", "k", "POST", "/p")
	one("exclusive", exclusive, "s", "k", "POST", "/p")
	one("exclusive, grouped", both, "s", "k", "POST", "/p")

	nul := strings.Repeat("\x00", 8)
	for _, pair := range [][2][]string{{{"a", "bc"}, {"ab", "c"}}, {{"a", ""}, {"", "a"}}, {{"a"}, {"a", ""}}, {{}, {""}},
		{{"a" + nul + "b", "c"}, {"a", "b" + nul + "c"}}, {{nul + "\x01a"}, {"", "a"}}, {{nul[1:] + "\x01a", "b"}, {"", nul[1:] + "\x01b"}}} {
		require.NotEqual(t, keys.Hash(pair[0]...), keys.Hash(pair[1]...), "%q", pair)
	}

	r, err = http.NewRequest(http.MethodPut, "http://a/other?q", http.NoBody)
	require.NoError(t, err)
	require.Equal(t, "grouped", seen[grouped.identity("s", "k", "host", r)], "in a group the path is of no account")
	reject := of()
	reject.Mode = idempotency.Reject
	r, err = http.NewRequest(http.MethodPost, "http://a/p?another=query", http.NoBody)
	require.NoError(t, err)
	r.RequestURI = "/p?another=query"
	require.Equal(t, "plain", seen[reject.identity("s", "k", "", r)], "nor is the query, which is in the fingerprint")
}

func TestContent_sameFingerprints(t *testing.T) {
	t.Parallel()
	print := func(query, body string) []byte {
		r, err := http.NewRequest(http.MethodPost, "http://a/?"+query, http.NoBody)
		require.NoError(t, err)
		p, err := fingerprint(nil).of(r, []byte(body))
		require.NoError(t, err)
		require.Len(t, p, idempotent.FingerprintSize)
		return p
	}
	require.True(t, idempotent.Same(print("q", "b"), print("q", "b")))
	for _, other := range [][2]string{{"q", "c"}, {"r", "b"}, {"qb", ""}, {"", "qb"}, {"b", "q"}} {
		require.False(t, idempotent.Same(print("q", "b"), print(other[0], other[1])), "%q", other)
	}
	require.True(t, idempotent.Same(nil, print("q", "b")))
	require.True(t, idempotent.Same(print("q", "b"), nil))
	require.False(t, idempotent.Same(print("q", "b"), print("q", "b")[:31]))
}
