package postgres

import (
	"crypto/sha256"
	"encoding/hex"
)

// payload returns the payload of the notification for a key. It is a hash: all users of the
// database may listen, and a key may hold personal data.
func payload(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}
