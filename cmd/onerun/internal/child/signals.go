//go:build unix

package child

import (
	"os"
	"os/signal"
	"syscall"
)

// CatchSignals has the channel notified of all signals, without those that are ignored (nohup),
// that the kernel or the Go runtime sends to this process itself, or that nobody can catch. The
// runtime leaves 32 to 34 alone: the C library uses them.
func CatchSignals(c chan<- os.Signal) {
	for n := 1; n < 65; n++ {
		switch s := syscall.Signal(n); s {
		case syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE,
			syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV,
			syscall.SIGPROF:
		default:
			if !signal.Ignored(s) {
				signal.Notify(c, s)
			}
		}
	}
}

// Stops reports whether the signal suspends a process.
func Stops(s syscall.Signal) bool {
	return s == syscall.SIGTSTP || s == syscall.SIGTTIN || s == syscall.SIGTTOU
}

// Ends reports whether the signal ends a process that does not handle it.
func Ends(s syscall.Signal) bool {
	return !Stops(s) && s != syscall.SIGCONT && s != syscall.SIGWINCH && s != syscall.SIGIO
}

// signalTarget sends the signal to target, as kill(2) does: to the process group -target if it is
// negative. It only looks if target is to be spared. It reports whether there is a process. 0 is
// none.
func signalTarget(target int, signal syscall.Signal, spare map[int]bool) bool {
	if spare[target] {
		signal = 0
	}
	return target != 0 && syscall.Kill(target, signal) == nil
}

// merges reports whether the kernel merges the signal with an equal one that is pending. The others
// are real-time signals, which a program can count, and those that stop and continue it.
func merges(s syscall.Signal) bool { return Ends(s) && s < 32 }

// FromTerminal reports whether the terminal sends the signal to a whole process group.
func FromTerminal(s syscall.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
		return true
	default:
		return Stops(s)
	}
}
