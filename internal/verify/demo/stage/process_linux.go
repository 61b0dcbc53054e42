package stage

import "syscall"

// endWithParent has the kernel end a child with its parent. This also ends a frozen child, which
// cannot see the end of its standard input.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
