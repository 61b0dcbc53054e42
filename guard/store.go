package guard

import (
	"errors"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker stores leases, with three methods: TryAcquire, Renew and Release. The packages below
// backend/ have one each. Package driver specifies what a Locker must do, and guardtest checks it.
type Locker = driver.Locker

// A Claim is one request for a key, as a Locker sees it.
type Claim = driver.Claim

// A Grant is a Locker's answer to TryAcquire.
type Grant = driver.Grant

// After specifies what a released key leaves behind: nothing, a minimum hold, or a done marker.
type After = driver.After

// A State is the essence of a Grant: Busy, Granted or Done.
type State = driver.State

// The answers of a Locker to TryAcquire.
const (
	// Busy means that another owner holds the key, or that its minimum hold has not passed.
	Busy = driver.Busy
	// Granted means that the claim holds the key.
	Granted = driver.Granted
	// Done means that the work for the key has finished, and that its marker still exists.
	Done = driver.Done
)

// MaxKey is the longest key in bytes, including the namespace.
const MaxKey = driver.MaxKey

// asStoreError returns what a Locker returned, as a *StoreError.
func asStoreError(op driver.Op, key string, err error) error {
	var store *StoreError
	if errors.As(err, &store) {
		return err
	}
	return driver.NewStoreError("", op, key, err)
}
