package guardtest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func recordChecks() []check {
	return []check{
		{name: "a record comes back byte for byte", run: keepsRecords},
		{name: "a record stays with its run", run: recordStays},
		{name: "a record is the store's own copy", run: copiesRecords},
	}
}

func keepsRecords(s *subject) {
	records := map[string][]byte{
		"nil":       nil,
		"empty":     {},
		"NUL":       {0},
		"newlines":  []byte("\n\r\n"),
		"number":    []byte("42"),
		"all bytes": allBytes(0),
		"64 KiB":    bytes.Repeat(allBytes(0), 256),
	}
	for key, record := range records {
		c := s.claim(key)
		s.here.take(c)
		s.here.give(c, guard.After{Keep: long, Done: true, Record: record})
	}
	for key, record := range records {
		g := s.there.finished(s.claim(key), long)
		require.True(s, bytes.Equal(record, g.Record), "the record of %d bytes under %q came back as %d others", len(record), key, len(g.Record))
	}
}

func recordStays(s *subject) {
	first, other := s.claim("key"), s.claim("other")
	s.here.take(first)
	s.here.take(other)
	s.here.give(other, guard.After{Keep: long, Done: true, Record: []byte("other's")})
	s.here.give(first, guard.After{Keep: s.short(), Done: true, Record: []byte("first")})
	s.settled(first.Key)
	second := s.claim("key")
	s.eventually(func() bool { return s.there.acquire(second).State == guard.Granted }, "the window passes")
	require.Empty(s, s.here.refused(s.claim("key"), second.TTL).Record, "the record of a key that is busy")
	s.there.give(second, guard.After{Keep: long, Done: true})
	require.Empty(s, s.here.finished(s.claim("key"), long).Record, "the record of a run that has left none")
	require.Equal(s, "other's", string(s.here.finished(s.claim("other"), long).Record))
}

func copiesRecords(s *subject) {
	c := s.claim("key")
	s.here.take(c)
	record := []byte("record")
	s.here.give(c, guard.After{Keep: long, Done: true, Record: record})
	record[0] = 'X'
	answer := s.here.finished(s.claim("key"), long)
	require.Equal(s, "record", string(answer.Record), "the record after the caller has changed what it gave")
	answer.Record[0] = 'X'
	require.Equal(s, "record", string(s.here.finished(s.claim("key"), long).Record), "the record after a caller has changed what it got")
}
