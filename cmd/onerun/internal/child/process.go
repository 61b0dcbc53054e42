//go:build unix

package child

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Command is what to run. It has the standard streams of this process.
type Command struct {
	Path string
	Args []string // with the name
	Env  []string
	// Terminal keeps the command in the process group of this process, so that it can read from
	// the terminal. The terminal's signals reach it by themselves.
	Terminal bool
	// Grace is for the processes that are left when the command has exited: they get SIGTERM, and
	// are killed after it.
	Grace time.Duration
}

// A Process is a command that has started. It is safe for concurrent use.
type Process struct {
	keeper  *os.Process
	pipes   [2]*os.File // of orders and reports
	done    chan struct{}
	changed chan struct{} // until was

	mu     sync.Mutex
	orders *json.Encoder
	until  time.Duration
	last   bool // until does not change any more
	target int
	result Result
}

// A Result is how a command has ended.
type Result struct {
	Code   int            // its exit code
	Signal syscall.Signal // which has killed it, or 0
	// Killed means that it is not known how it would have ended: the keeper has died, or was
	// suspended, and the command was killed.
	Killed bool
}

// A StartError is a command that could not be started.
type StartError struct {
	Errno  syscall.Errno
	reason string
}

func (e *StartError) Error() string { return e.reason }

// Start starts the command. It is killed at most left from now, unless Extend says otherwise.
func Start(c Command, left time.Duration) (*Process, error) {
	if err := adopt(); err != nil {
		return nil, fmt.Errorf("adopt orphans: %w", err)
	}
	p := &Process{done: make(chan struct{}), changed: make(chan struct{}, 1), until: now() + left}
	group := 0
	if c.Terminal {
		group = syscall.Getpgrp()
	}
	reports, err := p.startKeeper(c.Env)
	if err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	p.send(order{Until: int64(p.until), Start: &start{c.Path, c.Args, group, c.Grace}})
	var first report
	if err := reports.Decode(&first); err != nil || first.PID == 0 {
		p.endKeeper()
		if first.Failed != "" {
			return nil, &StartError{first.Errno, first.Failed}
		}
		return nil, fmt.Errorf("the keeper has died before it started the command: %w", err)
	}
	if p.target = -first.PID; c.Terminal {
		p.target = first.PID
	}
	leaveStreams()
	last := make(chan report, 1)
	go func() {
		var r report
		_ = reports.Decode(&r)
		last <- r
	}()
	go p.watch(last)
	return p, nil
}

// startKeeper starts this program once more. It returns the keeper's reports.
func (p *Process) startKeeper(env []string) (*json.Decoder, error) {
	orders, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer orders.Close()
	reports, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	path, err := self()
	if err != nil {
		return nil, err
	}
	p.keeper, err = os.StartProcess(path, []string{os.Args[0], KeeperArg}, &os.ProcAttr{
		Env:   env,
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, orders, theirs},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return nil, err
	}
	p.pipes, p.orders = [2]*os.File{ours, reports}, json.NewEncoder(ours)
	return json.NewDecoder(reports), nil
}

// Done is closed when no process of the command is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Result returns how the command has ended, after Done.
func (p *Process) Result() Result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.result
}

// Signal sends the signal to the command's process group, or to the command alone if it has none
// of its own.
func (p *Process) Signal(s syscall.Signal) { p.send(order{Signal: s}) }

// Extend has the command killed left from now, and not before. It does nothing after Limit.
func (p *Process) Extend(left time.Duration) { p.setUntil(left, false) }

// Limit has the command killed at most left from now, for good.
func (p *Process) Limit(left time.Duration) { p.setUntil(left, true) }

func (p *Process) setUntil(left time.Duration, last bool) {
	p.mu.Lock()
	if p.last {
		p.mu.Unlock()
		return
	}
	until := now() + left
	if last {
		until = min(until, p.until)
	}
	p.last, p.until = last, until
	p.mu.Unlock()
	p.send(order{Until: max(int64(until), 1)})
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *Process) send(o order) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The keeper may be suspended, and the pipe full.
	_ = p.pipes[0].SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	_ = p.orders.Encode(o)
}

// watch waits for the keeper's last report, and does the keeper's work if that has died or does
// not come to it.
func (p *Process) watch(last <-chan report) {
	defer close(p.done)
	var r report
	for over := false; !over; {
		p.mu.Lock()
		rest := min(tick, p.until-now())
		p.mu.Unlock()
		if rest <= 0 {
			break
		}
		select {
		case r = <-last:
			over = true
		case <-p.changed:
		case <-time.After(rest):
		}
	}
	for !r.Exited && signalAll(p.keeper.Pid, p.target, syscall.SIGKILL) {
		time.Sleep(pace)
		select {
		case r = <-last: // the keeper was as fast
		default:
		}
	}
	p.endKeeper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result = Result{Code: r.Code, Signal: r.Signal, Killed: !r.Exited}
}

// endKeeper ends the keeper, and waits for it.
func (p *Process) endKeeper() {
	_ = p.keeper.Kill()
	_, _ = p.keeper.Wait()
	_ = p.pipes[0].Close()
	_ = p.pipes[1].Close()
}
