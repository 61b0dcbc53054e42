package guardtest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func labelChecks() []check {
	return []check{
		{name: "a label comes back as it was", run: keepsLabels},
		{name: "a label goes with its holder", run: labelGoesWithHolder},
		{name: "a done marker has the label of the run that finished", run: markerHasLabel},
		{name: "a done marker keeps its first label", run: markerKeepsLabel},
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

// allLabels are labels that a store could get wrong.
func allLabels() []string {
	return []string{
		"", " ", "  web-1 pid 4242 ", "two\nlines\r\n", "\n", "0", "-1", "1e3", "nil", "a:b|c,d;e=f", `{"a":["b"]}`, "%s%d%%",
		"größer 大 🔒", string(allBytes(1)), strings.Repeat("x", 512),
	}
}

func keepsLabels(s *subject) {
	for _, label := range allLabels() {
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

func markerHasLabel(s *subject) {
	for i, label := range allLabels() {
		for j, record := range []string{"", "record", "\n"} {
			c := s.claim(fmt.Sprintf("key:%d:%d", i, j))
			s.here.take(c)
			c.Label = label // Release's counts: a lease can pass to another run inside of its process
			s.here.give(c, guard.After{Keep: long, Done: true, Record: []byte(record)})
			g := s.there.finished(s.claim(c.Key), long)
			require.Equal(s, label, g.Label)
			require.Equal(s, record, string(g.Record), "the record of a run with the label %q", label)
		}
	}
}

func markerKeepsLabel(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	s.here.give(c, guard.After{Keep: long, Done: true, Record: []byte("record")})
	again := c
	if s.store.Settled == nil { // a part that hears of the repetition first has that label
		again.Label = "second"
	}
	s.there.give(again, guard.After{Keep: long, Done: true, Record: []byte("second")})
	require.Equal(s, c.Label, s.here.finished(again, long).Label, "after a release that was repeated")
}
