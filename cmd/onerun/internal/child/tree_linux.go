package child

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of all of its descendants whose own parents have died.
func adopt() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent makes the kernel kill the command if the thread that starts it ends. So the thread
// must be locked, and last as long as the process.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// self is the path of this program, even if its file was replaced meanwhile.
func self() (string, error) { return "/proc/self/exe", nil }

// descendants returns the processes that descend from root and have not exited, without except.
func descendants(root, except int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	dead := map[int]bool{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		parent, exited, ok := stat(pid)
		if !ok {
			continue
		}
		children[parent] = append(children[parent], pid)
		dead[pid] = exited
	}
	var all []int
	for todo := children[root]; len(todo) > 0; {
		pid := todo[0]
		todo = todo[1:]
		all = append(all, pid)
		todo = append(todo, children[pid]...)
	}
	return slices.DeleteFunc(all, func(pid int) bool { return pid == except || dead[pid] }), nil
}

// stat returns a process's parent, and whether it has exited and was not waited for yet.
func stat(pid int) (parent int, exited, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false, false
	}
	// pid (name) state parent …, where the name may have spaces and parentheses.
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 {
		return 0, false, false
	}
	parent, err = strconv.Atoi(string(fields[1]))
	return parent, fields[0][0] == 'Z' || fields[0][0] == 'X', err == nil
}

// signalAll sends the signal to all processes that descend from this one, without except, and
// reports whether there are any. Signal 0 only looks. Without /proc, it goes to target, as on other
// systems.
func signalAll(except, target int, signal syscall.Signal) bool {
	all, err := descendants(os.Getpid(), except)
	if err != nil {
		return target != 0 && syscall.Kill(target, signal) == nil
	}
	for _, pid := range all {
		_ = syscall.Kill(pid, signal)
	}
	return len(all) > 0
}

// duplicate is dup2(2), which some architectures do not have.
func duplicate(from, to int) error { return unix.Dup3(from, to, 0) }
