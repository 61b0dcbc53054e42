package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// channel returns the name of the channel on which releases are notified.
func (l *Locker) channel() string { return strings.ReplaceAll(l.table, ".", "_") }

// payload returns the payload of the notification for a key. It is a hash: all users of the
// database may listen, and a key may hold personal data.
func (l *Locker) payload(key string) string {
	sum := sha256.Sum256([]byte(l.table + "\x00" + key))
	return hex.EncodeToString(sum[:16])
}
