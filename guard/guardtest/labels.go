package guardtest

import (
	"fmt"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func labelChecks() []check {
	return []check{
		{name: "a label is returned unchanged", run: keepsLabels},
		{name: "a label disappears with its holder", run: labelGoesWithHolder},
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

// allLabels returns labels that a backend may get wrong.
func allLabels() []string {
	return []string{
		"", " ", "  web-1 pid 4242 ", "two\nlines\r\n", "\n", "0", "-1", "1e3", "nil", "a:b|c,d;e=f", `{"a":["b"]}`, "%s%d%%",
		"größer 大 🔒", "\x1e1764000000000 name\x1flabel", string(allBytes(1)), strings.Repeat("x", 512),
	}
}

func keepsLabels(s *subject) {
	for _, label := range allLabels() {
		c := s.claim("key")
		c.Label = label
		s.here.mustAcquire(c)
		require.Equal(s, label, s.there.requireBusy(s.claim("key"), c.TTL).Label)
		c.Fence = 1
		require.True(s, s.here.renew(c))
		require.Equal(s, label, s.there.requireBusy(s.claim("key"), c.TTL).Label, "after a renewal")
		s.here.mustRelease(c, driver.After{})
	}
}

func labelGoesWithHolder(s *subject) {
	first, other := s.claim("key"), s.claim("other")
	s.here.mustAcquire(first)
	s.here.mustAcquire(other)
	s.here.mustRelease(first, driver.After{})
	second := s.claim("key")
	second.Label = ""
	s.there.mustAcquire(second)
	require.Empty(s, s.here.requireBusy(s.claim("key"), second.TTL).Label, "Label must be empty if the holder has none")
	require.Equal(s, other.Label, s.there.requireBusy(s.claim("other"), other.TTL).Label)
}

func markerHasLabel(s *subject) {
	for i, label := range allLabels() {
		for j, record := range []string{"", "record", "\n"} {
			c := s.claim(fmt.Sprintf("key:%d:%d", i, j))
			s.here.mustAcquire(c)
			// The label of the release counts, because a lease may have been handed off inside a
			// process.
			c.Label = label
			s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: []byte(record)})
			g := s.there.requireDone(s.claim(c.Key), long)
			require.Equal(s, label, g.Label)
			require.Equal(s, record, string(g.Record), "the record of a run with the label %q", label)
		}
	}
}

func markerKeepsLabel(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: []byte("record")})
	again := c
	if s.backend.Settled == nil { // otherwise a node may get the repeated release first
		again.Label = "second"
	}
	s.there.mustRelease(again, driver.After{Keep: long, Done: true, Record: []byte("second")})
	require.Equal(s, c.Label, s.here.requireDone(again, long).Label, "after a repeated release")
}
