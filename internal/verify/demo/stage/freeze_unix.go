//go:build unix

package stage

import "syscall"

// CanFreeze reports whether processes can be frozen on this system.
const CanFreeze = true

const (
	sigFreeze = syscall.SIGSTOP
	sigThaw   = syscall.SIGCONT
)
