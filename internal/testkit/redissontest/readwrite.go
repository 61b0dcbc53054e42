package redissontest

import (
	"context"
	_ "embed"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// A mode is what a Lock is of an RReadWriteLock. The zero mode is a lock that is none.
type mode string

const (
	reader mode = "read"
	writer mode = "write"
)

// ReadLock returns the readLock() of the RReadWriteLock of that name.
func (c *Client) ReadLock(name string) *Lock { return c.lock(name, reader) }

// WriteLock returns the writeLock() of the RReadWriteLock of that name.
func (c *Client) WriteLock(name string) *Lock { return c.lock(name, writer) }

var (
	//go:embed read_acquire.lua
	readAcquireSource string
	//go:embed read_unlock.lua
	readUnlockSource string
	//go:embed read_renew.lua
	readRenewSource string
	//go:embed write_acquire.lua
	writeAcquireSource string
	//go:embed write_unlock.lua
	writeUnlockSource string
	//go:embed mode_force_unlock.lua
	modeForceUnlockSource string

	readAcquireScript     = script{redis.NewScript(readAcquireSource), false}
	readUnlockScript      = script{redis.NewScript(readUnlockSource), false}
	readRenewScript       = script{redis.NewScript(readRenewSource), true}
	writeAcquireScript    = script{redis.NewScript(writeAcquireSource), false}
	writeUnlockScript     = script{redis.NewScript(writeUnlockSource), false}
	modeForceUnlockScript = script{redis.NewScript(modeForceUnlockSource), true}
)

// thread is the field of a thread that does not write.
func (l *Lock) thread(thread int64) string {
	return l.client.id + ":" + strconv.FormatInt(thread, 10)
}

// timeoutKeys is what the names of the timeout keys of a thread begin with.
func (l *Lock) timeoutKeys(thread int64) string {
	return inBraces(l.name) + ":" + l.thread(thread) + ":rwlock_timeout"
}

// TimeoutKey is the key that lasts as long as the nth hold of a thread that reads.
func (l *Lock) TimeoutKey(thread int64, nth int) string {
	return l.timeoutKeys(thread) + ":" + strconv.Itoa(nth)
}

func (l *Lock) sendAcquire(ctx context.Context, thread, ms int64) *redis.Cmd {
	switch l.mode {
	case reader:
		keys := []string{l.name, l.timeoutKeys(thread)}
		return l.client.eval(ctx, readAcquireScript, keys, ms, l.Field(thread), l.thread(thread)+":write")
	case writer:
		return l.client.eval(ctx, writeAcquireScript, []string{l.name}, ms, l.Field(thread))
	default:
		return l.client.eval(ctx, acquireScript, []string{l.name}, ms, l.Field(thread))
	}
}

func (l *Lock) sendUnlock(ctx context.Context, thread int64, latch string) *redis.Cmd {
	if l.mode == reader {
		keys := []string{l.name, l.Channel(), l.timeoutKeys(thread), inBraces(l.name), latch}
		return l.client.eval(ctx, readUnlockScript, keys,
			unlockMessage, l.Field(thread), l.client.publishCommand(), latchTime())
	}
	sent, message := unlockScript, unlockMessage
	if l.mode == writer {
		sent, message = writeUnlockScript, readUnlockMessage
	}
	return l.client.eval(ctx, sent, []string{l.name, l.Channel(), latch},
		message, l.lease.Load(), l.Field(thread), l.client.publishCommand(), latchTime())
}

func (l *Lock) sendForceUnlock(ctx context.Context) *redis.Cmd {
	keys, publish := []string{l.name, l.Channel()}, l.client.publishCommand()
	switch l.mode {
	case reader:
		return l.client.eval(ctx, modeForceUnlockScript, keys, unlockMessage, publish, string(l.mode))
	case writer:
		return l.client.eval(ctx, modeForceUnlockScript, keys, readUnlockMessage, publish, string(l.mode))
	default:
		return l.client.eval(ctx, forceUnlockScript, keys, unlockMessage, publish)
	}
}

func (l *Lock) sendRenew(ctx context.Context, thread int64) *redis.Cmd {
	if l.mode == reader {
		return l.sendReaderRenew(ctx, thread, 0)
	}
	return l.client.eval(ctx, renewScript, []string{l.name}, watchdogTimeout, l.Field(thread))
}

func (l *Lock) sendReaderRenew(ctx context.Context, thread int64, all int) *redis.Cmd {
	keys := []string{l.name, inBraces(l.name)}
	return l.client.eval(ctx, readRenewScript, keys, watchdogTimeout, l.Field(thread), all)
}

// RenewAll is Renew of a reader as older versions of Redisson (such as 3.30) did it: it also
// renews the timeout keys of all other readers.
func (l *Lock) RenewAll(ctx context.Context, thread int64) (bool, error) {
	held, err := l.sendReaderRenew(ctx, thread, 1).Int64Slice()
	return err == nil && held[0] == 1, l.error("renew", err)
}
