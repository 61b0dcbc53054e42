package guard

import (
	"syscall"
	"time"
	"unsafe"
)

// asleep returns for how long the host has been suspended since it booted: what CLOCK_BOOTTIME is ahead of
// CLOCK_MONOTONIC, by which Go's timers and time.Since run. The two cannot be read at once, and
// the process may be interrupted in between: what is said is then too little for atLeast, and too
// much for atMost, so that an interruption never looks like a suspension.
func asleep(b bound) time.Duration {
	if b == atMost {
		mono := nanotime()
		return readBoottime() - time.Duration(mono)
	}
	boot := readBoottime()
	return boot - time.Duration(nanotime())
}

func readBoottime() time.Duration {
	const clockBoottime = 7
	var ts syscall.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39, and ts is ours.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	return time.Duration(ts.Nano())
}

// nanotime reads CLOCK_MONOTONIC without a system call. The runtime keeps the name for those outside of it. Package time has no way to
// read it as it is: in a bubble of testing/synctest its clock is another one.
//
//go:linkname nanotime runtime.nanotime
func nanotime() int64
