package stage

import "syscall"

// endWithParent has the kernel end a child with the parent also where the child cannot see its
// standard input end, because it is frozen.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
