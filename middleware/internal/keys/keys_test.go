package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

func TestIsName_asTheGuardHasIt(t *testing.T) {
	t.Parallel()
	for name, is := range map[string]bool{
		"report": true, "\u00e9t\u00e9 {1}@": true, strings.Repeat("n", 128): true,
		strings.Repeat("n", 129): false, "a\x00b": false, "\xff": false,
	} {
		require.Equal(t, is, keys.IsName(name), "%q", name)
		_, err := guard.New(memory.New(), guard.WithName(name))
		require.Equal(t, is, err == nil, "%q: %v", name, err)
	}
	require.False(t, keys.IsName(""), "no name")
}
