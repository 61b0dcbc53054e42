package idempotent

import (
	"crypto/hmac"
	"encoding/base64"

	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/middleware/internal/keys"
)

// Stored returns the key under which the store knows a call: a hash, so that the store does not
// show what clients send. A key belongs to its scope, and to the group or else to the place, which
// says what is called.
func (s *Settings) Stored(scope, key string, place ...string) string {
	kind := "once"
	if s.Mode == idempotency.Exclusive {
		kind = "exclusive" // has no records, and must not meet any
	}
	parts := make([]string, 0, 8) // on the stack
	if s.Group != "" {
		parts = append(parts, kind, scope, "group", s.Group, key)
	} else {
		parts = append(append(append(parts, kind, scope), place...), key)
	}
	sum := keys.Hash(parts...)
	return s.Adapter.String() + ":" + base64.RawURLEncoding.EncodeToString(sum[:])
}

// Same compares two fingerprints, in constant time. An empty one is the same as any: there was
// none when the record was made, or there is none now.
func Same(a, b []byte) bool { return len(a) == 0 || len(b) == 0 || hmac.Equal(a, b) }
