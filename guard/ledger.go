package guard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A boundedLedger checks what a Ledger is told, and bounds its calls.
type boundedLedger struct {
	guard  *Guard
	ledger driver.Ledger
}

const ledgerTimeout = 5 * time.Second

// name returns the name by which the store knows it.
func (l *boundedLedger) name(name string) (string, error) {
	if ns := l.guard.set.namespace; ns != "" && name != "" {
		name = ns + ":" + name
	}
	return name, driver.CheckKey(name)
}

// Append implements Ledger.
func (l *boundedLedger) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	name, err := l.name(name)
	switch {
	case err != nil:
		return err
	case e.At < 0 || e.At > driver.MaxCounter:
		return &SettingError{Setting: "Entry.At", Value: fmt.Sprint(e.At), Reason: "must be from 0 to 2^53-1"}
	case len(e.Record) == 0 || len(e.Record) > driver.MaxEntry:
		return &SettingError{Setting: "Entry.Record", Value: fmt.Sprintf("%d bytes", len(e.Record)), Reason: fmt.Sprintf("must be from 1 to %d bytes", driver.MaxEntry)}
	}
	if err := checkEntries("keep", keep); err != nil {
		return err
	}
	return l.call(ctx, name, func(ctx context.Context) error { return l.ledger.Append(ctx, name, e, keep) })
}

// Entries implements Ledger.
func (l *boundedLedger) Entries(ctx context.Context, name string, n int) ([]driver.Entry, error) {
	name, err := l.name(name)
	if err != nil {
		return nil, err
	}
	if err := checkEntries("n", n); err != nil {
		return nil, err
	}
	var entries []driver.Entry
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
	case to < 0 || to > driver.MaxCounter:
		return 0, &SettingError{Setting: "to", Value: fmt.Sprint(to), Reason: "must be from 0 to 2^53-1"}
	}
	var was int64
	err = l.call(ctx, name, func(ctx context.Context) (err error) {
		was, err = l.ledger.Raise(ctx, name, counter, to)
		return err
	})
	return was, err
}

// call makes a bounded call to the store, and reports it.
func (l *boundedLedger) call(ctx context.Context, name string, f func(context.Context) error) error {
	sent := l.guard.clock.Now()
	bounded, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	err := ledgerError(ctx, name, f(bounded))
	l.report(ctx, name, sent, err)
	return err
}

// ledgerError returns the error of a call: that of the caller's context if this has ended, and
// else a *StoreError.
func ledgerError(ctx context.Context, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return contextEnded(ctx, driver.OpLedger, name)
	default:
		return asStoreError(driver.OpLedger, name, err)
	}
}

func checkEntries(setting string, n int) error {
	if n < 1 || n > driver.MaxEntries {
		return &SettingError{Setting: setting, Value: fmt.Sprint(n), Reason: fmt.Sprintf("must be from 1 to %d", driver.MaxEntries)}
	}
	return nil
}
