//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/child"
)

// A signalError means that a signal has ended the wait for the key.
type signalError struct{ signal syscall.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("received signal %d (%v)", int(e.signal), e.signal)
}

// patience is how long a command may still take to start after a signal that ends programs. It then
// gets the signal.
const patience = time.Second

// A dispatcher takes all signals of this process. While it waits for the key, a signal ends the
// wait. Then all are forwarded to the command.
type dispatcher struct {
	signals  chan os.Signal
	terminal bool   // the command is in our process group
	stop     func() // stops this process, until SIGCONT

	mu      sync.Mutex
	process *child.Process // nil while it waits
	early   []syscall.Signal
	started bool                    // the command is about to start
	cancel  context.CancelCauseFunc // ends the wait, or the start
}

func newDispatcher() *dispatcher {
	return &dispatcher{
		signals:  make(chan os.Signal, 64),
		terminal: term.IsTerminal(int(os.Stdin.Fd())) || foreground(),
		// The shell has to see that this process stops, too. If it stays stopped, the keeper ends
		// the command before the lease ends.
		stop: func() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) },
	}
}

// foreground reports whether this process is in the foreground of its terminal: the command may
// read from /dev/tty then, which stops a process group in the background.
func foreground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// waiting begins to take signals. It returns the context of the wait. Signals are taken until stop
// is called.
func (d *dispatcher) waiting() (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	d.cancel = cancel
	child.CatchSignals(d.signals)
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-d.signals:
				d.take(s.(syscall.Signal))
			case <-ended:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(d.signals)
		close(ended)
		cancel(nil)
	}
}

// start returns the signal that has ended the wait just now, if there is one. Otherwise signals
// are kept for the command, which is about to start under the context that start returns.
func (d *dispatcher) start(ctx context.Context) (context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.started = true
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	ctx, d.cancel = context.WithCancelCause(ctx)
	return ctx, nil
}

// forward forwards signals to the command from now on.
func (d *dispatcher) forward(p *child.Process) {
	d.mu.Lock()
	d.process = p
	stops := d.sendEarly(p.Forward)
	d.mu.Unlock()
	if stops {
		d.stop()
	}
}

// sendEarly sends the signals that were kept, and reports whether they stop the command.
func (d *dispatcher) sendEarly(send func(syscall.Signal)) (stops bool) {
	for _, s := range d.early {
		send(s)
		stops = child.Stops(s) || stops && s != syscall.SIGCONT
	}
	d.early = nil
	return stops
}

func (d *dispatcher) take(s syscall.Signal) {
	d.mu.Lock()
	forwards := !d.terminal || !child.FromTerminal(s)
	stops := child.Stops(s)
	switch {
	case d.process != nil && forwards:
		d.process.Forward(s)
	case d.process != nil:
	case d.started:
		stops = false // before the command has the signal, it would run on alone
		d.early = append(d.early, s)
		if cancel := d.cancel; child.Ends(s) {
			time.AfterFunc(patience, func() { cancel(&signalError{s}) })
		}
	case child.Ends(s):
		d.cancel(&signalError{s})
	}
	d.mu.Unlock()
	if stops {
		d.stop()
	}
}
