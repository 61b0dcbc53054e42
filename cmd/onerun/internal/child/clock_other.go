//go:build unix && !linux

package child

import (
	"time"

	"golang.org/x/sys/unix"
)

// now reads a clock that all processes of the host share.
func now() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return time.Duration(t.Nano())
}
