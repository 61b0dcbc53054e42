package clock

import (
	"syscall"
	"time"
	"unsafe"
)

// suspension returns how long the host has been suspended since it booted: the lead of
// CLOCK_BOOTTIME over CLOCK_MONOTONIC, which Go's timers and time.Since use. The two clocks cannot
// be read at the same instant, and the process may be interrupted between the two readings. The
// result is then too small for AtLeast and too large for AtMost, so an interruption never looks
// like a suspension.
func suspension(b Bound) time.Duration {
	if b == AtMost {
		mono := nanotime()
		return boottime() - time.Duration(mono)
	}
	boot := boottime()
	return boot - time.Duration(nanotime())
}

func boottime() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39, and ts is valid.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// nanotime reads CLOCK_MONOTONIC without a system call. The runtime keeps this name for other
// packages. Package time offers no way to read that clock: in a bubble of testing/synctest its
// clock is a different one.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64
