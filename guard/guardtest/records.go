package guardtest

import (
	"bytes"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func recordChecks() []check {
	return []check{
		{name: "a record is returned byte for byte", run: keepsRecords},
		{name: "a record belongs to its run alone", run: recordStays},
		{name: "the store copies a record", run: copiesRecords},
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
		s.here.mustAcquire(c)
		s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: record})
	}
	for key, record := range records {
		g := s.there.requireDone(s.claim(key), long)
		require.True(s, bytes.Equal(record, g.Record), "the record of %d bytes under %q was returned as %d other bytes", len(record), key, len(g.Record))
	}
}

func recordStays(s *subject) {
	first, other := s.claim("key"), s.claim("other")
	s.here.mustAcquire(first)
	s.here.mustAcquire(other)
	s.here.mustRelease(other, driver.After{Keep: long, Done: true, Record: []byte("other's")})
	s.here.mustRelease(first, driver.After{Keep: s.short(), Done: true, Record: []byte("first")})
	second := s.claim("key")
	s.eventually(func() bool { return s.there.acquire(second).State == driver.Granted }, "the window of the marker passes")
	require.Empty(s, s.here.requireBusy(s.claim("key"), second.TTL).Record, "Record must be empty if the key is busy")
	s.there.mustRelease(second, driver.After{Keep: long, Done: true})
	require.Empty(s, s.here.requireDone(s.claim("key"), long).Record, "Record must be empty if the run left none")
	require.Equal(s, "other's", string(s.here.requireDone(s.claim("other"), long).Record))
}

func copiesRecords(s *subject) {
	c := s.claim("key")
	s.here.mustAcquire(c)
	record := []byte("record")
	s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: record})
	record[0] = 'X'
	answer := s.here.requireDone(s.claim("key"), long)
	require.Equal(s, "record", string(answer.Record), "the record after the caller has changed its slice")
	answer.Record[0] = 'X'
	require.Equal(s, "record", string(s.here.requireDone(s.claim("key"), long).Record), "the record after another caller has changed the returned slice")
}
