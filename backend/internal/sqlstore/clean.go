package sqlstore

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

const (
	// cleanEvery is after how many releases a Locker deletes old rows, and cleanUpTo how many: more
	// than the releases can have left.
	cleanEvery = 256
	cleanUpTo  = 512
	// cleanWithin bounds the time that it takes.
	cleanWithin = 5 * time.Second
)

// Clean deletes up to limit rows of keys that were not used for a day, and returns how many it has
// deleted. A Locker does that by itself, after each 256th release. Call Clean if a process stops
// after a few releases, as a job does, and no other process uses the table.
func (l *Locker) Clean(ctx context.Context, limit int) (deleted int, err error) {
	return Ask(ctx, l, driver.OpCleanUp, "", func(ctx context.Context) (int, error) {
		return l.dialect.Clean(ctx, limit)
	})
}

// cleanSometimes deletes old rows in the background after some of the releases, one statement at a
// time.
func (l *Locker) cleanSometimes() {
	if l.releases.Add(1)%cleanEvery != 0 || !l.cleaning.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer l.cleaning.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), cleanWithin)
		defer cancel()
		_, _ = l.Clean(ctx, cleanUpTo) // if it fails, the next one deletes them
	}()
}
