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

// signalAll sends the signal to target, as kill(2) does: to the process group -target if it is
// negative. It reports whether there is a process. 0 is none.
func signalAll(_, target int, signal syscall.Signal) bool {
	return target != 0 && syscall.Kill(target, signal) == nil
}

func duplicate(from, to int) error { return unix.Dup2(from, to) }
