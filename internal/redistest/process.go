package redistest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is one run of redis-server, from fork to reaping.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is reaped
}

// startProcess runs redis-server with its output appended to the file named log, and env added to our environment.
//
// The kernel kills it when the thread that made it ends (Pdeathsig, prctl(2)), which covers a
// test binary that is itself killed. Go ends threads at will, so one goroutine keeps the thread
// locked until the process is reaped; that goroutine ends with the process.
func startProcess(log string, env []string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // killed on purpose, so the exit status says nothing
		}
	}()
	return p, <-started
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process and waits until it is reaped. It sends no SIGCONT first: SIGKILL ends a
// stopped process as well, and a moment awake would let it answer what it had received.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // fails only if it is gone
	<-p.done
}

// stop sends SIGSTOP and returns when the process stands still.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return poll(5*time.Second, func() error {
		state, err := p.state()
		if err == nil && state != 'T' {
			err = fmt.Errorf("process %d is in state %q after SIGSTOP", p.pid(), state)
		}
		return err
	})
}

func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// state is the letter that proc(5) gives for the process: R, S, T, Z and others.
func (p *process) state() (byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid()))
	if err != nil {
		return 0, err
	}
	name := bytes.LastIndexByte(stat, ')') // the name may hold anything, blanks included
	if name < 0 || name+2 >= len(stat) {
		return 0, fmt.Errorf("process %d: unreadable state %q", p.pid(), stat)
	}
	return stat[name+2], nil
}
