package adaptertest

import (
	"context"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
)

// A KeyStore is a store in memory that notes which keys are taken, to compare them with those that
// a page of the docs states. A page has a paragraph for each adapter:
//
//	**Keys in the store** of `guardcron`: `NAMESPACE:cron:JOB` for …
//
// It is safe for concurrent use.
type KeyStore struct {
	linetest.Line

	mu   sync.Mutex
	keys map[string]bool
}

// NewKeyStore returns an empty KeyStore.
func NewKeyStore() *KeyStore {
	s := &KeyStore{keys: map[string]bool{}}
	s.Line = linetest.Line{Locker: memory.New(), Ask: func(_ context.Context, c linetest.Call) error {
		if c.Name == "acquire" {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.keys[c.Key] = true
		}
		return nil
	}}
	return s
}

// NewGuard returns a Guard over the store, which the test closes.
func (s *KeyStore) NewGuard(t *testing.T) *guard.Guard {
	t.Helper()
	g, err := guard.New(s, guard.WithNamespace("test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// Taken returns the keys that were taken so far, in order.
func (s *KeyStore) Taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.keys))
}

var (
	statedKey  = regexp.MustCompile("`(NAMESPACE::[^`]*)`")
	statedWord = regexp.MustCompile(`[A-Z]+`)
)

// Check requires that the paragraph of the adapter states each of the keys taken, and no other.
// values has an expression for each word in capitals that the stated keys contain.
func (s *KeyStore) Check(t *testing.T, page, adapter string, values map[string]string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, found, ok := strings.Cut(string(text), "**Keys in the store** of `"+adapter+"`")
	require.True(t, ok, "%s states no keys of %s", page, adapter)
	found, _, _ = strings.Cut(found, "\n\n")
	taken := s.Taken()
	require.NotEmpty(t, taken)
	for _, m := range statedKey.FindAllStringSubmatch(found, -1) {
		pattern := expression(t, m[1], values)
		rest := slices.DeleteFunc(slices.Clone(taken), pattern.MatchString)
		require.Less(t, len(rest), len(taken), "%s states %s, and no such key is taken: %q", page, m[1], taken)
		taken = rest
	}
	require.Empty(t, taken, "%s does not state these keys of %s", page, adapter)
}

// expression returns what matches a stated key.
func expression(t *testing.T, stated string, values map[string]string) *regexp.Regexp {
	t.Helper()
	text := statedWord.ReplaceAllStringFunc(regexp.QuoteMeta(stated), func(name string) string {
		value, ok := values[name]
		if name == "NAMESPACE" {
			value, ok = "test", true
		}
		require.True(t, ok, "the page has an unknown word: %s", name)
		return value
	})
	return regexp.MustCompile("^" + text + "$")
}
