//go:build !linux

package stage

import "syscall"

// endWithParent leaves it to the end of the child's standard input.
func endWithParent() *syscall.SysProcAttr { return nil }
