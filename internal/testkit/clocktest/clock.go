// Package clocktest gives a process of a test a wall clock that the test moves. Its monotonic
// clock runs on as it is.
//
//	clock := clocktest.New(t)
//	env, err := clock.Preload(ctx, t.TempDir()) // for a program in C, such as redis-server
//	binary, err := clocktest.BuildGo(ctx, t.TempDir(), "-c", "./internal/verify/faults")
//	…
//	clock.Jump(2 * time.Minute)
//
// A program in C asks its C library for the time, and gets another one preloaded. One in Go does
// not: it reads the kernel's page by itself. So it is built with a standard library whose time.Now
// adds what the test says. Linux only.
package clocktest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// shiftEnv names the file in which a process finds by how many nanoseconds its clock is off: eight
// bytes in the machine's order.
const shiftEnv = "ONERUN_CLOCK"

// A Clock is the wall clock of the processes that are started with its environment. It is right
// until it is moved. It is safe for concurrent use.
type Clock struct {
	file  string
	shift *atomic.Int64 // in the memory that is shared with the processes
}

// New returns a clock that lasts until the test ends.
func New(t testing.TB) *Clock {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shift")
	page, err := mapShift(file)
	if err != nil {
		t.Fatalf("clocktest: make a clock: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(page) }) // fails only for memory that is not mapped
	return &Clock{file: file, shift: (*atomic.Int64)(unsafe.Pointer(&page[0]))}
}

func mapShift(file string) ([]byte, error) {
	const size = 8
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return nil, err
	}
	page, err := syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	return page, os.NewSyscallError("mmap", err)
}

// Jump moves the clock by d from its present time: forward, or back if d is negative. The next
// reader sees the jump.
func (c *Clock) Jump(d time.Duration) { c.shift.Add(int64(d)) }

// Shift is by how much the clock is off.
func (c *Clock) Shift() time.Duration { return time.Duration(c.shift.Load()) }

// Env is what a Go program that BuildGo has built is started with, beside the environment that it
// has anyway.
func (c *Clock) Env() []string { return []string{fmt.Sprintf("%s=%s", shiftEnv, c.file)} }
