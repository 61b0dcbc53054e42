package guard

import (
	"errors"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker stores leases, with three methods: TryAcquire, Renew and Release. The packages below
// backend/ have one each. Package driver specifies what a Locker must do, and guardtest checks it.
type Locker = driver.Locker

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
