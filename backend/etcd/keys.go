package etcd

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
)

// The keys in etcd, after the prefix. A key of Onerun has no NUL byte, so no directory begins with
// another one. The ID of a claim has no space, so a claim has no key of another meaning.
//
//	clock                  how revisions become fences
//	h/<key>\0<claim ID>    a claim that holds the key, or keeps it by its minimum hold
//	h/<key>\0 done         the done marker, with the record
//	h/<key>\0 wanted       the claim for which others are kept away
//	e/<name>\0<hash>       an entry of a log
//	c/<name>\0<counter>    a counter
const (
	clockName   = "clock"
	holdersName = "h/"
	entriesName = "e/"
	counterName = "c/"
	doneName    = " done"
	wantedName  = " wanted"
)

// A directory is the range of the keys in etcd that are about one key of Onerun.
type directory string

func (l *Locker) directory(key string) directory {
	return directory(l.prefix + holdersName + key + "\x00")
}

// of returns a key of the directory.
func (d directory) of(name string) string { return string(d) + name }

// end is the first key after the directory.
func (d directory) end() string { return afterNUL(string(d)) }

// afterNUL returns the first key after those that begin with s, which ends with a NUL byte.
func afterNUL(s string) string { return strings.TrimSuffix(s, "\x00") + "\x01" }

// maxSeconds is the longest lease of etcd.
const maxSeconds = 9_000_000_000

// seconds returns a duration in whole seconds, rounded up. It is at least 1.
func seconds(d time.Duration) int64 {
	return min(max(int64(math.Ceil(d.Seconds())), 1), maxSeconds)
}

// leaseID returns the ID of a lease for a key in etcd. A call that is repeated finds the lease that
// it has made before. The key has the ID of a claim in it, or use has.
func leaseID(key, use string, ttl time.Duration) int64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", key, use, seconds(ttl)))
	return max(int64(binary.BigEndian.Uint64(sum[:8])>>1), 1) //nolint:gosec // 63 bits
}
