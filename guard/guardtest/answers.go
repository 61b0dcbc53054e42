package guardtest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// Busy returns the answer that another claim, with that label, holds the key for the time left.
func Busy(left time.Duration, label string) (driver.Answer, error) {
	return driver.Answer{State: driver.Busy, Left: left, Label: label}, nil
}

// Done returns the answer that the work for the key is done, with the record of the finished run.
// The marker lasts for another hour.
func Done(record []byte) (driver.Answer, error) {
	return driver.Answer{State: driver.Done, Left: time.Hour, Record: record}, nil
}

// Fail returns a *guard.StoreError of that kind. If a script returns it, Scripted fills in the
// operation and the key. A Guard retries after most kinds, see driver.StoreErrorKind.Permanent.
func Fail(kind driver.StoreErrorKind) error {
	return &guard.StoreError{Backend: "scripted", Kind: kind, Err: errFail}
}

var errFail = errors.New("the test simulates a failure")

// Hang blocks until ctx ends, like a store that does not answer. It then returns
// Fail(driver.KindTimeout).
func Hang(ctx context.Context) error {
	<-ctx.Done()
	return Fail(driver.KindTimeout)
}
