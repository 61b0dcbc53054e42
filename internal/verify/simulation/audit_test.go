package simulation_test

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// stored is a lease or a marker as a server keeps it.
type stored struct {
	text string
	ids  []string // of the claims that are named in it
	ends time.Time
}

// id finds the IDs of claims, which are the last 26 of such characters: a backend may put a letter
// in front.
var id = regexp.MustCompile(`[A-Z2-7]{26,}`)

// audit checks I7 after a request was carried out: what was kept for a claim, and had not ended,
// may have been changed, ended or renewed only by a request that names the claim. It knows nothing
// else of how a backend keeps its leases. It comes at once, before another request can arrive.
func (s *server) audit(link string, request []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, now := s.leases, time.Now()
	s.look()
	for key, was := range before {
		is, ok := s.leases[key]
		same := ok && is.text == was.text && is.ends.Equal(was.ends)
		if same || !was.ends.After(now) || was.namedBy(request) {
			continue
		}
		becomes := "nothing"
		if ok {
			becomes = s.show(is)
		}
		s.world.violate("I7", "%s: %s has changed %s from %s to %s", link, command(request), key, s.show(was), becomes)
	}
}

func (s *server) show(l stored) string {
	return fmt.Sprintf("%q until %v", l.text, l.ends.Sub(s.world.start))
}

func (l stored) namedBy(request []byte) bool {
	for _, id := range l.ids {
		if bytes.Contains(request, []byte(id)) {
			return true
		}
	}
	return false
}

// look notes what the server keeps. s.mu must be held.
func (s *server) look() {
	seen := map[string]stored{}
	now := time.Now()
	s.redis.SetTime(now.Add(s.offset))
	for _, key := range s.redis.Keys() {
		is := stored{text: content(s.redis, key)}
		if was := s.leases[key]; was.text == is.text {
			is.ids = was.ids
		} else {
			for _, found := range id.FindAllString(is.text, -1) {
				is.ids = append(is.ids, found[len(found)-26:])
			}
		}
		// other keys are counters and queues, which other claims change
		if len(is.ids) > 0 && !strings.Contains(key, "}:waiters:") {
			is.ends = now.Add(s.redis.TTL(key))
			seen[key] = is
		}
	}
	s.leases = seen
}

func content(m *miniredis.Miniredis, key string) string {
	if m.Type(key) != "hash" {
		text, _ := m.Get(key)
		return text
	}
	var all strings.Builder
	fields, _ := m.HKeys(key)
	for _, field := range fields {
		all.WriteString(field + "=" + m.HGet(key, field) + " ")
	}
	return all.String()
}

// command returns the name of the first command in a request.
func command(request []byte) string {
	parts := bytes.SplitN(request, []byte("\r\n"), 4)
	if len(parts) < 3 {
		return "?"
	}
	return string(parts[2])
}
