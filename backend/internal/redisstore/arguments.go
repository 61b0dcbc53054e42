package redisstore

import (
	"strconv"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A ttlText is a TTL as the argument of a script.
type ttlText struct {
	ttl  time.Duration
	text string
}

// residue returns the arguments that say what release leaves behind: "", or a letter and for how
// long; the label of a done marker, and its record.
func residue(c driver.Claim, after driver.After) (leave, label string, record []byte) {
	switch {
	case after.Keep <= 0:
		return "", "", nil
	case after.Done:
		return "D" + milliseconds(after.Keep), c.Label, after.Record
	default:
		return "K" + milliseconds(after.Keep), "", nil
	}
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(Milliseconds(d), 10) }

// Milliseconds returns d as the argument of PX, rounded up.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
