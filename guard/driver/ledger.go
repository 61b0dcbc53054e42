package driver

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"
)

const (
	// LedgerTTL is the shortest time for which a Ledger keeps a log that is not written to, and a
	// counter that is neither raised nor read.
	LedgerTTL = 400 * 24 * time.Hour
	// Lasting begins the names of counters that a Ledger never forgets. LastingTTL is the shortest
	// time for which it keeps them.
	Lasting    = "lasting "
	LastingTTL = 36_500 * 24 * time.Hour
	// MaxCounter is the largest number that a Ledger can keep: a larger one is not exact in the
	// Lua of a Redis.
	MaxCounter = 1<<53 - 1
	// MaxEntries is how many entries of a log can be kept.
	MaxEntries = 10000
	// MaxEntry is the longest record of an entry in bytes.
	MaxEntry = 64 << 10
)

// A Ledger is a Locker that also keeps a bounded log and a few counters under a name. Adapters
// store there which process ran which tick, how far a job has come, and whether it is paused. What
// is not used for LedgerTTL may be forgotten, except for counters that are Lasting. Names follow
// the rules for keys. A name never collides with a key.
//
// A call makes one attempt, and returns soon after its context has ended. After an error it is
// unknown whether the call changed anything. Repeating it is harmless.
type Ledger interface {
	// Append adds an entry to the log of the name, and drops the oldest entries beyond keep. An
	// entry that exists already stays as it is.
	Append(ctx context.Context, name string, e Entry, keep int) error
	// EntriesOf returns the newest entries of the logs of names, of which there is one at least: at
	// most n of each, the newest first. It takes one round trip to each server.
	EntriesOf(ctx context.Context, names []string, n int) ([][]Entry, error)
	// Raise raises a counter of the name to at least to, which is from 0 to MaxCounter. It returns
	// the previous value, which is 0 if the counter was never raised. If several calls raise it to
	// the same number, at most one of them gets a smaller previous value.
	Raise(ctx context.Context, name, counter string, to int64) (was int64, err error)
	// CountersOf returns the values of counters, of which there is one at least: that of
	// counters[i] of names[i], or 0 if it was never raised. It takes one round trip to each
	// server. A counter that is read this way is not kept longer because of it.
	CountersOf(ctx context.Context, names, counters []string) ([]int64, error)
}

// CounterTTL returns for how long a Ledger keeps a counter of that name that nobody uses.
func CounterTTL(counter string) time.Duration {
	if strings.HasPrefix(counter, Lasting) {
		return LastingTTL
	}
	return LedgerTTL
}

// An Entry is a line of a log. Two entries with the same Record are the same entry.
type Entry struct {
	// At orders the entries. It is the number of milliseconds since 1970, or any other number from
	// 0 to MaxCounter.
	At     int64
	Record []byte
}

// Entries returns the newest entries of one log, as Ledger.EntriesOf does.
func Entries(ctx context.Context, l Ledger, name string, n int) ([]Entry, error) {
	logs, err := l.EntriesOf(ctx, []string{name}, n)
	if err != nil {
		return nil, err
	}
	return logs[0], nil
}

// NewestFirst compares two entries by their order in a log.
func NewestFirst(a, b Entry) int {
	return cmp.Or(cmp.Compare(b.At, a.At), bytes.Compare(b.Record, a.Record))
}

// Newest returns the n newest entries of copies of a log, each once.
func Newest(n int, logs ...[]Entry) []Entry {
	all := slices.Concat(logs...)
	slices.SortFunc(all, NewestFirst)
	all = slices.CompactFunc(all, func(a, b Entry) bool { return bytes.Equal(a.Record, b.Record) })
	return all[:min(len(all), n)]
}
