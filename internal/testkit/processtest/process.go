package processtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A Process is one run of a program, from its start until it is reaped. Its methods may be called
// from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process is reaped
	err  error         // how it has ended, once it is
}

// Start starts the command, whose SysProcAttr.Pdeathsig it sets, and reaps the process when that
// ends. Nobody else may wait for the command.
//
// The kernel kills the process when the thread that made it ends (Pdeathsig, prctl(2)), which
// covers a test binary that is itself killed, and a process that is frozen. Go ends threads at
// will, so one goroutine keeps the thread locked until the process is reaped; that goroutine ends
// with the process.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// PID is the process id, also of a process that has ended.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the process has ended, is reaped, and all that it has
// written is read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Ended reports whether Done is closed.
func (p *Process) Ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Wait returns when Done is closed, and says how the process has ended: nil if it did so by itself
// with exit code 0.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Signal sends the process a signal. The error is os.ErrProcessDone if it has ended.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL, frozen or not, and returns when Done is closed. Killing one
// that has ended does nothing. It sends no SIGCONT first: a moment awake would let the process
// answer what it had received.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL) // fails only if it has ended
	<-p.done
}

// Freeze stops the process with SIGSTOP and returns when it has stopped.
func (p *Process) Freeze() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// between two looks
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		state, err := p.state()
		if err != nil || state == 'T' {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d is in state %q after SIGSTOP", p.PID(), state)
		}
	}
}

// Thaw lets a frozen process go on with SIGCONT.
func (p *Process) Thaw() error { return p.Signal(syscall.SIGCONT) }

// state is the letter that proc(5) gives for the process: R, S, T, Z and others.
func (p *Process) state() (byte, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	name := bytes.LastIndexByte(stat, ')') // the name may hold anything, blanks included
	if name < 0 || name+2 >= len(stat) {
		return 0, fmt.Errorf("process %d: unreadable state %q", p.PID(), stat)
	}
	return stat[name+2], nil
}
