package guard

import (
	"context"
	"fmt"
	"time"
)

// A Ledger is a Locker that can also keep, under a name, a log of bounded length and a few counters: who ran which tick, how far a job has come, is it
// paused. What is not written to for LedgerTTL may be forgotten. Names are as keys are, and none meets a key.
//
// A call makes one attempt, and returns soon after its context has ended. After an error it is not known whether the call has changed anything;
// repeating it is harmless.
type Ledger interface {
	// Append puts an entry into the log of the name, and drops the oldest ones beyond keep. An entry that is there already stays as it is.
	Append(ctx context.Context, name string, e Entry, keep int) error
	// Entries returns the newest entries of the log, at most n, the newest first.
	Entries(ctx context.Context, name string, n int) ([]Entry, error)
	// Raise makes a counter of the name at least to, which is from 0 to MaxCounter, and returns what it was before: 0 if it had never been raised.
	// Of several that raise it to the same number, one at most is told of a smaller one.
	Raise(ctx context.Context, name, counter string, to int64) (was int64, err error)
}

// An Entry is a line of a log. Two entries with the same Record are the same entry.
type Entry struct {
	// At orders the entries: milliseconds since 1970, or what else is from 0 to MaxCounter.
	At     int64
	Record []byte
}

const (
	// LedgerTTL is for how long a Ledger keeps at least what is not written to.
	LedgerTTL = 400 * 24 * time.Hour
	// MaxCounter is the largest number that a Ledger can keep: what is exact in the Lua of a Redis.
	MaxCounter = 1<<53 - 1
	// MaxEntries is how many entries of a log can be kept.
	MaxEntries = 10000
	// MaxEntry is the longest record of an entry in bytes.
	MaxEntry = 64 << 10
)

// Ledger returns the Ledger of the Guard's store, with the Guard's namespace before its names. Its calls are bounded by 5 s each, and refuse what cannot be
// kept: a *KeyError for a name, a *SettingError for the rest. They return the error of the caller's context if that has ended, and a *StoreError if the store could not be
// asked. It returns false if the store has none.
func (g *Guard) Ledger() (Ledger, bool) {
	l, ok := Ability[Ledger](g.locker)
	if !ok {
		return nil, false
	}
	return &boundedLedger{guard: g, ledger: l}, true
}

// A boundedLedger checks what a Ledger is told, and bounds its calls.
type boundedLedger struct {
	guard  *Guard
	ledger Ledger
}

const ledgerTimeout = 5 * time.Second

// name returns the name by which the store knows it.
func (l *boundedLedger) name(name string) (string, error) {
	if ns := l.guard.set.namespace; ns != "" && name != "" {
		name = ns + ":" + name
	}
	return name, CheckKey(name)
}

// Append implements Ledger.
func (l *boundedLedger) Append(ctx context.Context, name string, e Entry, keep int) error {
	name, err := l.name(name)
	switch {
	case err != nil:
		return err
	case e.At < 0 || e.At > MaxCounter:
		return &SettingError{Setting: "Entry.At", Value: fmt.Sprint(e.At), Reason: "must be from 0 to 2^53-1"}
	case len(e.Record) == 0 || len(e.Record) > MaxEntry:
		return &SettingError{Setting: "Entry.Record", Value: fmt.Sprintf("%d bytes", len(e.Record)), Reason: fmt.Sprintf("must be from 1 to %d bytes", MaxEntry)}
	}
	if err := checkEntries("keep", keep); err != nil {
		return err
	}
	return l.call(ctx, name, func(ctx context.Context) error { return l.ledger.Append(ctx, name, e, keep) })
}

// Entries implements Ledger.
func (l *boundedLedger) Entries(ctx context.Context, name string, n int) ([]Entry, error) {
	name, err := l.name(name)
	if err != nil {
		return nil, err
	}
	if err := checkEntries("n", n); err != nil {
		return nil, err
	}
	var entries []Entry
	err = l.call(ctx, name, func(ctx context.Context) (err error) {
		entries, err = l.ledger.Entries(ctx, name, n)
		return err
	})
	return entries, err
}

// Raise implements Ledger.
func (l *boundedLedger) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	name, err := l.name(name)
	switch {
	case err != nil:
		return 0, err
	case counter == "":
		return 0, &SettingError{Setting: "counter", Value: `""`, Reason: "must not be empty"}
	case to < 0 || to > MaxCounter:
		return 0, &SettingError{Setting: "to", Value: fmt.Sprint(to), Reason: "must be from 0 to 2^53-1"}
	}
	var was int64
	err = l.call(ctx, name, func(ctx context.Context) (err error) {
		was, err = l.ledger.Raise(ctx, name, counter, to)
		return err
	})
	return was, err
}

// call makes a call to the store, bounded, and tells the hooks of it.
func (l *boundedLedger) call(ctx context.Context, name string, f func(context.Context) error) error {
	g := l.guard
	sent := g.now()
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := ledgerError(ctx, name, f(bounded))
	if len(g.set.hooks) > 0 {
		hooks(g.set.hooks).tell(ctx, &Event{Name: g.set.name, Key: name, Op: OpLedger, Start: g.epoch.Add(sent), Duration: g.now() - sent, Err: err}, pickCall)
	}
	return err
}

// ledgerError returns the error of a call: that of the caller's context if this has ended, and else a *StoreError.
func ledgerError(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return contextEnded(ctx, OpLedger, name)
	default:
		return asStoreError(OpLedger, name, err)
	}
}

func checkEntries(setting string, n int) error {
	if n < 1 || n > MaxEntries {
		return &SettingError{Setting: setting, Value: fmt.Sprint(n), Reason: fmt.Sprintf("must be from 1 to %d", MaxEntries)}
	}
	return nil
}
