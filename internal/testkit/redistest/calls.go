package redistest

import (
	"maps"
	"strconv"
	"strings"
	"testing"
)

// Calls returns how often each command ran since the server started or ResetStats was called,
// by lower-case name ("evalsha", "set", "client|setinfo"), without the calls that this package
// made. Redis counts the commands inside a script too: one EVALSHA that sets a key is one
// "evalsha" and one "set". HELLO and CLIENT of each new go-redis connection, and what replicas,
// sentinels and cluster clients ask, are counted as well.
func (s *Server) Calls(t testing.TB) map[string]int64 {
	t.Helper()
	s.mu.Lock()
	asked := maps.Clone(s.asked) // before INFO, which does not count itself yet
	s.mu.Unlock()
	info, err := s.ask("info", "INFO commandstats")
	if err != nil {
		t.Fatalf("redistest: count the calls of redis-server %s: %v", s.Addr(), err)
	}
	calls := map[string]int64{}
	for line := range strings.Lines(info) {
		if name, n, ok := parseCalls(line); ok && n > asked[name] {
			calls[name] = n - asked[name]
		}
	}
	return calls
}

// parseCalls reads a line like "cmdstat_set:calls=3,usec=9,…".
func parseCalls(line string) (name string, n int64, ok bool) {
	line, ok = strings.CutPrefix(line, "cmdstat_")
	name, figures, found := strings.Cut(line, ":calls=")
	figure, _, _ := strings.Cut(figures, ",")
	n, err := strconv.ParseInt(figure, 10, 64)
	return name, n, ok && found && err == nil
}

// ResetStats starts the counters of Calls at zero.
func (s *Server) ResetStats(t testing.TB) {
	t.Helper()
	if err := s.resetStats(); err != nil {
		t.Fatalf("redistest: reset the counters of redis-server %s: %v", s.Addr(), err)
	}
}

func (s *Server) resetStats() error {
	const stat = "config|resetstat"
	if _, err := s.ask(stat, "CONFIG RESETSTAT"); err != nil {
		return err
	}
	s.mu.Lock()
	s.asked = map[string]int64{stat: 1} // the command is counted after it has reset
	s.mu.Unlock()
	return nil
}
