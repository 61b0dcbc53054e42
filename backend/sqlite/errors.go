package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// texts are the kinds of errors by the text that SQLite has for them (sqlite3_errstr), which all
// drivers quote. The first match decides.
var texts = []struct {
	text string
	kind driver.StoreErrorKind
	hint string
}{
	{"database is locked", driver.KindTimeout, "another connection has written for too long"},
	{"table is locked", driver.KindTimeout, "another connection has written for too long"},
	{"no such table", driver.KindSettings, "call Migrate, or apply Schema"},
	{"no such column", driver.KindSettings, "the table is of another version: drop it while nothing uses it, and call Migrate"},
	{"has no column", driver.KindSettings, "the table is of another version: drop it while nothing uses it, and call Migrate"},
	{"readonly database", driver.KindReadOnly, "the file and its folder must be writable"},
	{"unable to open database file", driver.KindSettings, "the path must name a file, in a folder that exists and is writable"},
	{"file is not a database", driver.KindSettings, "another program's file is there"},
	{"malformed", driver.KindProtocol, "restore the file from a backup, without the files -wal and -shm of another one"},
	{"database or disk is full", driver.KindNotPersisted, "make room"},
	{"disk I/O error", driver.KindNotPersisted, "the disk may be full or broken: see the log of the host"},
	{"access permission denied", driver.KindAuth, "the file and its folder must be writable"},
	{"out of memory", driver.KindOOM, "the process has no memory left"},
	{"interrupted", driver.KindCanceled, "the call was cancelled"},
}

// Explain implements sqlstore.Dialect. The error names the file.
func (d *dialect) Explain(_ driver.Op, err error) (driver.StoreErrorKind, error) {
	kind, err := d.explain(err)
	if path := d.named.Load(); path != nil {
		err = fmt.Errorf("%s: %w", *path, err)
	}
	return kind, err
}

func (d *dialect) explain(err error) (driver.StoreErrorKind, error) {
	switch {
	case errors.Is(err, errReplaced):
		return driver.KindRestarted, err
	case errors.Is(err, context.DeadlineExceeded):
		if since := d.writer.lockedFor(); since > 0 {
			return driver.KindTimeout, fmt.Errorf("another connection has written for %v: %w", since.Round(time.Millisecond), err)
		}
		return "", err
	}
	for _, t := range texts {
		if strings.Contains(err.Error(), t.text) {
			return t.kind, fmt.Errorf("%s: %w", t.hint, err)
		}
	}
	return "", err
}

// isLocked reports whether another connection writes, so that the statement has done nothing.
func isLocked(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "table is locked"))
}

// whileLocked calls f again while it fails because another connection writes, until ctx ends.
func whileLocked(ctx context.Context, f func() error) error {
	for began := time.Now(); ; {
		err := f()
		if !isLocked(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(retryAfter(time.Since(began))):
		}
	}
}

// retryAfter returns the pause before a locked file is tried again: about a tenth of the time that
// has passed, and up to 20 ms.
func retryAfter(passed time.Duration) time.Duration {
	pause := min(max(passed/10, 500*time.Microsecond), 20*time.Millisecond)
	return pause/2 + rand.N(pause)
}
