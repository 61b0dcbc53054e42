// Package keys has what the middlewares share: it hashes the parts of a key, and finds a key in a
// JSON object.
package keys

import (
	"crypto/sha256"
	"encoding/binary"
)

// Hash hashes the parts, each after its length, so that no two lists of parts share a hash.
func Hash(parts ...string) [sha256.Size]byte {
	size := 0
	for _, p := range parts {
		size += 8 + len(p)
	}
	all := make([]byte, 0, min(size, 1024))
	for _, p := range parts {
		all = binary.BigEndian.AppendUint64(all, uint64(len(p)))
		all = append(all, p...)
	}
	return sha256.Sum256(all)
}
