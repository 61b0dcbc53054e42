//go:build unix

package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Start starts the command. It is killed at most left from now, unless Extend says otherwise. If it
// has not started by then, or before ctx ends, Start returns an error, and nothing of it is left.
func Start(ctx context.Context, c Command, left time.Duration) (*Process, error) {
	if err := adopt(); err != nil {
		return nil, fmt.Errorf("adopt orphans: %w", err)
	}
	p := &Process{done: make(chan struct{}), changed: make(chan struct{}, 1), until: now() + left}
	reports, err := p.startKeeper(c.Env)
	if err != nil {
		return nil, fmt.Errorf("start the keeper: %w", err)
	}
	first, err := p.order(ctx, c, reports, time.Now().Add(left))
	if err != nil {
		p.abandon()
		return nil, err
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

// order has the keeper start the command, and returns its report. The order is longer than a pipe
// if the arguments are, and the keeper may be slow, or suspended. So only the deadline and the end
// of ctx bound the wait.
func (p *Process) order(ctx context.Context, c Command, reports *json.Decoder, deadline time.Time) (first report, err error) {
	bound := func(at time.Time) {
		_ = p.pipes[0].SetWriteDeadline(at)
		_ = p.pipes[1].SetReadDeadline(at)
	}
	bound(deadline)
	stop := context.AfterFunc(ctx, func() { bound(time.Now()) })
	s := &start{Path: []byte(c.Path), Grace: c.Grace}
	for _, arg := range c.Args {
		s.Args = append(s.Args, []byte(arg))
	}
	if c.Terminal {
		s.Group = syscall.Getpgrp()
	}
	if err = p.orders.Encode(order{Until: int64(p.until), Start: s}); err == nil {
		err = reports.Decode(&first)
	}
	switch {
	case !stop():
		return first, context.Cause(ctx)
	case first.PID != 0:
		bound(time.Time{})
		return first, nil
	case len(first.Failed) > 0:
		return first, &StartError{first.Errno, string(first.Failed)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return first, errors.New("the keeper has not started the command before the lease would have ended")
	default:
		return first, fmt.Errorf("the keeper has died before it started the command: %w", err)
	}
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
	p.keeper, err = os.StartProcess(path, []string{keeperName, KeeperArg}, &os.ProcAttr{
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

// Forward is Signal for a signal that this process has got. Equal ones of about the same time are
// one signal to the command. It is dropped if the command has got it, too, because whoever sent it
// has sent it to all processes. Most signals are forwarded after a tenth of a second therefore.
func (p *Process) Forward(s syscall.Signal) {
	if merges(s) {
		p.send(order{Forward: s})
	} else {
		p.Signal(s)
	}
}

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
	for !r.Exited && signalAll(p.keeper.Pid, p.target, syscall.SIGKILL, nil) {
		time.Sleep(pace)
		p.reap()
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

// reap waits for processes of the command that have exited, if they are children of this process
// because the keeper has died. Otherwise a process group would have members for good.
func (p *Process) reap() {
	for pid := 1; pid > 0; {
		pid, _ = syscall.Wait4(p.target, nil, syscall.WNOHANG, nil)
	}
}

// abandon ends the keeper, and the command if it has started by now.
func (p *Process) abandon() {
	_ = p.pipes[0].Close() // a keeper that is not suspended kills the command then, on all systems
	_ = p.pipes[1].SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	_, _ = io.Copy(io.Discard, p.pipes[1])
	for signalAll(0, 0, syscall.SIGKILL, nil) {
		_, _ = p.keeper.Wait()
		time.Sleep(pace)
	}
	p.endKeeper()
}

// endKeeper ends the keeper, and waits for it.
func (p *Process) endKeeper() {
	_ = p.keeper.Kill()
	_, _ = p.keeper.Wait()
	_ = p.pipes[0].Close()
	_ = p.pipes[1].Close()
}
