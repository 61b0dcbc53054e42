package driver

import (
	"context"
	"errors"
	"time"
)

// A Wrapper is what a type embeds that changes some calls of another Locker. It has the methods of
// Locker, Describer, Subscriber, Warner and Ledger, and passes each call on. The methods of the
// outer type take precedence. What has no method here cannot pass the outer type by: a Guard makes
// each claim in a call of its own, and the Locker is no Inspector. The outer type may add these
// methods itself.
//
// A type that changes keys must do so in each of the methods, and in Description.CheckKey.
type Wrapper struct{ Locker }

var (
	_ Describer  = Wrapper{}
	_ Subscriber = Wrapper{}
	_ Warner     = Wrapper{}
	_ Ledger     = Wrapper{}
)

// Describe implements Describer.
func (w Wrapper) Describe() Description {
	d := Describe(w.Locker)
	if _, ok := w.Locker.(Subscriber); !ok {
		d.Polls = true
	}
	return d
}

// Subscribe implements Subscriber. It never notifies if the inner Locker is no Subscriber.
func (w Wrapper) Subscribe(key, id string, notify func(in time.Duration)) (stop func()) {
	if s, ok := w.Locker.(Subscriber); ok {
		return s.Subscribe(key, id, notify)
	}
	return func() {}
}

// Warnings implements Warner.
func (w Wrapper) Warnings(ctx context.Context) []error {
	if warner, ok := w.Locker.(Warner); ok {
		return warner.Warnings(ctx)
	}
	return nil
}

var errNoLedger = errors.New("the backend has no ledger")

// ledger returns the inner Ledger, or an error of KindUnsupported if there is none.
func (w Wrapper) ledger(name string) (Ledger, error) {
	if l, ok := w.Locker.(Ledger); ok {
		return l, nil
	}
	return nil, &StoreError{Backend: Describe(w.Locker).Name, Op: OpLedger, Key: name, Kind: KindUnsupported, Err: errNoLedger}
}

// Append implements Ledger.
func (w Wrapper) Append(ctx context.Context, name string, e Entry, keep int) error {
	l, err := w.ledger(name)
	if err != nil {
		return err
	}
	return l.Append(ctx, name, e, keep)
}

// EntriesOf implements Ledger.
func (w Wrapper) EntriesOf(ctx context.Context, names []string, n int) ([][]Entry, error) {
	l, err := w.ledger(names[0])
	if err != nil {
		return nil, err
	}
	return l.EntriesOf(ctx, names, n)
}

// Raise implements Ledger.
func (w Wrapper) Raise(ctx context.Context, name, counter string, to int64) (was int64, err error) {
	l, err := w.ledger(name)
	if err != nil {
		return 0, err
	}
	return l.Raise(ctx, name, counter, to)
}

// CountersOf implements Ledger.
func (w Wrapper) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	l, err := w.ledger(names[0])
	if err != nil {
		return nil, err
	}
	return l.CountersOf(ctx, names, counters)
}
