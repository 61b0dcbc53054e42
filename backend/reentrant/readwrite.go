package reentrant

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/redisstore"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// maxSharedTTL is Redisson's default lockWatchdogTimeout. While a thread in Java holds a read
// lock, its renewals set the TTL of the whole hash to that, even if a reader of ours needs more. If
// that thread then dies, a writer could get the lock while our reader relies on its lease.
const maxSharedTTL = 30 * time.Second

// WithReadWrite makes each key a read-write lock: Redisson's RReadWriteLock instead of its RLock.
// A claim that holds its key alone is a writer, and one that shares it (guard.WithShared) is a
// reader. Readers and writers in Go and in Java exclude one another in both directions.
// guard.WithLimit is refused with a *guard.SettingError.
//
// The TTL of a shared claim is at most 30 s. A call with a longer one fails with a
// *guard.SettingError inside of a *guard.StoreError. While a thread in Java reads, Redisson sets
// the TTL of the whole lock to lockWatchdogTimeout, 30 s by default. If yours is shorter, use a
// TTL that is no longer. A minimum hold of a shared claim may be longer, but ends early if that
// thread dies.
//
// A writer that waits keeps later readers in Go from the key. Readers in Java do not look for it.
// A minimum hold and a done marker of a claim alone are a writer to Java. A shared claim of an
// owner that holds the key alone is granted, and holds the key alone as well until its release.
//
// Set the option in all processes that use a key. Processes with and without it exclude each
// other, but Java's RReadWriteLock does not notice those without it, nor any RLock.
//
// Each claim and each release is a script of its own. They share pipelines. A service that parses
// scripts (Alibaba Cloud's Tair with script_check_enable) refuses them: calls end with
// driver.KindUnsupported. Defaults to off: each
// key is an RLock, and to Redisson a shared claim holds it like any other.
func WithReadWrite() Option { return func(l *Locker) { l.readWrite = true } }

var (
	//go:embed readwrite.lua
	readWriteSource string
	//go:embed readwrite_acquire.lua
	readWriteAcquireSource string

	readWriteScripts = redisstore.NewScripts(redisstore.Sources{
		Common: redisstore.TimesSource + holdsSource + readWriteSource + constants + sharedSource,
		Acquire: redisstore.Operation{
			Source: acquireSharedSource + "timeout = KEYS[5]\n" + readWriteAcquireSource,
			Keys:   2, FurtherKeys: 3, Args: 3, Shared: 3, FurtherArgs: 2, Fences: true,
			Publishes: true, Admits: "max_holders > 1",
		},
		Renew: redisstore.Operation{
			Source: "timeout = KEYS[3]\n" + renewSource,
			Keys:   2, FurtherKeys: 1, Args: 2, Shared: 2, Fences: true,
		},
		Release: redisstore.Operation{
			Source: "local FREE = '1'\ntimeout = KEYS[4]\n" + releaseSharedSource,
			Keys:   2, FurtherKeys: 2, Args: 1, Shared: 3, Record: true, Publishes: true, Free: nextSource,
		},
	})
)

func (l *Locker) shares(c driver.Claim) bool { return l.readWrite && c.MaxHolders == driver.Unlimited }

// checkTTL returns an error if the claim is shared and its TTL is too long for that.
func (l *Locker) checkTTL(c driver.Claim) error {
	if !l.shares(c) || c.TTL <= maxSharedTTL {
		return nil
	}
	return &driver.StoreError{
		Backend: "reentrant", Op: driver.OpAcquire, Key: c.Key, Addr: l.store.Addr(),
		Kind: driver.KindSettings,
		Err: &driver.SettingError{
			Setting: "WithTTL", Value: c.TTL.String(),
			Reason: fmt.Sprintf("with reentrant.WithReadWrite, a shared lease lasts for %v at most: "+
				"Redisson would cut a longer one", maxSharedTTL),
		},
	}
}

// timeoutKey returns the key whose TTL is, to Redisson, how long a claim has the lock.
func timeoutKey(c driver.Claim) string {
	return inBraces(c.Key) + ":onerun:" + c.ID + ":read:rwlock_timeout:1"
}

// inBraces returns a key as Redisson writes it in the names of other keys: in braces, or as it is
// if it has a brace.
func inBraces(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}
