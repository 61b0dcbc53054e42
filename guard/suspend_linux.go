package guard

import (
	"syscall"
	"time"
	"unsafe"
)

// bound says on which side of the truth asleep may err.
type bound bool

const (
	atLeast bound = false
	atMost  bound = true
)

// asleep returns how long the host has been suspended since it booted: what CLOCK_BOOTTIME is ahead of
// CLOCK_MONOTONIC, by which Go's timers and time.Since run. The two cannot be read at once, and
// the process may be interrupted in between: what is said is then too little for atLeast, and too
// much for atMost, so that an interruption never looks like a suspension.
func asleep(b bound) time.Duration {
	const clockMonotonic, clockBoottime = 1, 7
	if b == atMost {
		mono := readClock(clockMonotonic)
		return readClock(clockBoottime) - mono
	}
	boot := readClock(clockBoottime)
	return boot - readClock(clockMonotonic)
}

func readClock(id uintptr) time.Duration {
	var ts syscall.Timespec
	// It cannot fail: both clocks exist since Linux 2.6.39, and ts is ours.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}
