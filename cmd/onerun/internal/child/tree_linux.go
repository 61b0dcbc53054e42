package child

import (
	"bytes"
	"errors"
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

// errOtherTable means that /proc does not show this process and what it has started.
var errOtherTable = errors.New("/proc is that of other processes")

// A table is /proc as this process sees it. It may be that of an outer PID namespace, where all
// processes have other numbers.
type table struct {
	self  int // this process
	depth int // where NSpid has the numbers of our own namespace
}

// openTable returns an error if this process is not in /proc.
func openTable() (table, error) {
	link, err := os.Readlink("/proc/self")
	if err != nil {
		return table{}, err
	}
	self, err := strconv.Atoi(link)
	if err != nil {
		return table{}, err
	}
	numbers, err := namespaceIDs(self)
	switch {
	case err != nil:
		return table{}, err
	case len(numbers) == 0: // before Linux 4.1, or not Linux itself
		numbers = []int{self}
	}
	t := table{self, len(numbers) - 1}
	if numbers[t.depth] != os.Getpid() {
		return table{}, errOtherTable
	}
	return t, nil
}

// number returns the number of a process in our own namespace.
func (t table) number(pid int) (int, bool) {
	if t.depth == 0 {
		return pid, true
	}
	numbers, err := namespaceIDs(pid)
	if err != nil || len(numbers) <= t.depth {
		return 0, false // it has exited
	}
	return numbers[t.depth], true
}

// namespaceIDs returns the numbers of a process: first the one in /proc, last the one in its own
// namespace. See NSpid in proc_pid_status(5).
func namespaceIDs(pid int) (numbers []int, err error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		rest, ok := bytes.CutPrefix(line, []byte("NSpid:"))
		if !ok {
			continue
		}
		for _, field := range bytes.Fields(rest) {
			n, err := strconv.Atoi(string(field))
			if err != nil {
				return nil, err
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// descendants returns the processes that descend from this one and have not exited, without
// except. It returns an error if /proc cannot say.
func descendants(except int) ([]int, error) {
	t, err := openTable()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	dead := map[int]bool{}
	found := false
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		parent, exited, ok := stat(pid)
		if !ok {
			continue
		}
		found = found || pid == t.self
		children[parent] = append(children[parent], pid)
		dead[pid] = exited
	}
	if !found {
		return nil, errOtherTable
	}
	var all []int
	for todo := children[t.self]; len(todo) > 0; {
		pid := todo[0]
		todo = append(todo[1:], children[pid]...)
		if dead[pid] {
			continue
		}
		if n, ok := t.number(pid); ok && n != except {
			all = append(all, n)
		}
	}
	return all, nil
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

// signalAll sends the signal to all processes that descend from this one, without except and those
// to spare, and reports whether there are any. Signal 0 only looks. If /proc does not show them, it
// goes to target, as on other systems.
func signalAll(except, target int, signal syscall.Signal, spare map[int]bool) bool {
	all, err := descendants(except)
	if err != nil {
		return signalTarget(target, signal, spare)
	}
	for _, pid := range all {
		if !spare[pid] {
			_ = syscall.Kill(pid, signal)
		}
	}
	return len(all) > 0
}

// members returns the descendants that a signal to target reaches, as far as they are known. All
// are those of target 0.
func members(target int) []int {
	all, _ := descendants(0)
	return slices.DeleteFunc(all, func(pid int) bool {
		switch {
		case target > 0:
			return pid != target
		case target < 0:
			group, err := syscall.Getpgid(pid)
			return err != nil || group != -target
		}
		return false
	})
}

// duplicate is dup2(2), which some architectures do not have.
func duplicate(from, to int) error { return unix.Dup3(from, to, 0) }
