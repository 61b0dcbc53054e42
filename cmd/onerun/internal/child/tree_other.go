//go:build unix && !linux

package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func adopt() error { return nil }

func dieWithParent(*syscall.SysProcAttr) {}

func self() (string, error) { return os.Executable() }

// signalAll sends the signal to target, and reports whether there is a process.
func signalAll(_, target int, signal syscall.Signal, spare map[int]bool) bool {
	return signalTarget(target, signal, spare)
}

func members(int) []int { return nil }

func duplicate(from, to int) error { return unix.Dup2(from, to) }
