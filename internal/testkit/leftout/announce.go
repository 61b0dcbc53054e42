package leftout

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// sysPidfdGetfd is pidfd_getfd(2), Linux 5.6, the same number on every architecture.
const sysPidfdGetfd = 438

// announce writes one line where the person at the terminal sees it: to the stderr of the go
// command that runs this test binary, or to our own when the parent is something else.
func announce(line string) {
	out := os.Stderr
	if parent, err := goCommandStderr(); err == nil {
		defer parent.Close()
		out = parent
	}
	fmt.Fprintln(out, line)
}

// goCommandStderr opens the stderr of the parent process, if that is the go command.
func goCommandStderr() (*os.File, error) {
	pid := os.Getppid()
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return nil, err
	}
	if name := strings.TrimSpace(string(comm)); name != "go" {
		return nil, fmt.Errorf("leftout: parent %d is %q, not go", pid, name)
	}
	if file, err := sharedStderr(pid); err == nil {
		return file, nil
	}
	return os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", pid), os.O_WRONLY|os.O_APPEND, 0)
}

// sharedStderr duplicates the very descriptor, offset included: stderr redirected into a plain
// file would otherwise be overwritten by the parent's next line. The kernel may refuse it
// (ptrace_scope), hence the plain open as second choice.
func sharedStderr(pid int) (*os.File, error) {
	parent, err := os.FindProcess(pid)
	if err != nil {
		return nil, err
	}
	defer func() { _ = parent.Release() }()
	var fd uintptr
	var errno syscall.Errno
	err = parent.WithHandle(func(handle uintptr) {
		fd, _, errno = syscall.Syscall(sysPidfdGetfd, handle, 2, 0)
	})
	if err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("pidfd_getfd", errno)
	}
	return os.NewFile(fd, "stderr of go"), nil
}
