package guardtest

import (
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func labelChecks() []check {
	return []check{
		{name: "a label comes back as it was", run: keepsLabels},
		{name: "a label goes with its holder", run: labelGoesWithHolder},
	}
}

// allBytes returns the byte values from first on.
func allBytes(first int) []byte {
	var b []byte
	for v := first; v < 256; v++ {
		b = append(b, byte(v))
	}
	return b
}

func keepsLabels(s *subject) {
	labels := []string{
		"", " ", "  web-1 pid 4242 ", "two\nlines\r\n", "\n", "0", "-1", "1e3", "nil", "a:b|c,d;e=f", `{"a":["b"]}`, "%s%d%%",
		"größer 大 🔒", string(allBytes(1)), strings.Repeat("x", 512),
	}
	for _, label := range labels {
		c := s.claim("key")
		c.Label = label
		s.here.take(c)
		require.Equal(s, label, s.there.refused(s.claim("key"), c.TTL).Label)
		c.Fence = 1
		require.True(s, s.here.renew(c))
		require.Equal(s, label, s.there.refused(s.claim("key"), c.TTL).Label, "after a renewal")
		s.here.give(c, guard.After{})
	}
}

func labelGoesWithHolder(s *subject) {
	first, other := s.claim("key"), s.claim("other")
	s.here.take(first)
	s.here.take(other)
	s.here.give(first, guard.After{})
	second := s.claim("key")
	second.Label = ""
	s.there.take(second)
	require.Empty(s, s.here.refused(s.claim("key"), second.TTL).Label, "the label of a holder that has none")
	require.Equal(s, other.Label, s.there.refused(s.claim("other"), other.TTL).Label)
}
