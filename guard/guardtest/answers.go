package guardtest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// Busy is the answer to a claim that another, of that label, holds the key for left.
func Busy(left time.Duration, label string) (guard.Grant, error) {
	return guard.Grant{State: guard.Busy, Left: left, Label: label}, nil
}

// Done is the answer to a claim that the key's work is done, with what it left. The marker stands for
// another hour.
func Done(record []byte) (guard.Grant, error) {
	return guard.Grant{State: guard.Done, Left: time.Hour, Record: record}, nil
}

// Fail returns a *guard.StoreError of that kind. A Scripted that is told to return it fills in the call
// at hand. A Guard asks again after most kinds, see guard.Kind.Permanent.
func Fail(kind guard.Kind) error {
	return &guard.StoreError{Store: "scripted", Kind: kind, Err: errFail}
}

var errFail = errors.New("a failure that the test asked for")

// Hang blocks until ctx ends, as a store does that does not answer, and then returns
// Fail(guard.KindTimeout).
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return Fail(guard.KindTimeout)
}
