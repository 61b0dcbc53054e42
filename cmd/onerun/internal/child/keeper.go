//go:build unix

package child

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"syscall"
	"time"
)

// KeeperArg is the argument by which Start starts this program as a keeper. The program's main
// function has to call Keep then.
const KeeperArg = "_keeper"

// keeperName is what the keeper is called. It is not the name of this program: a signal that the
// keeper gets counts as one to all processes, so one for all programs of a name must not reach it.
const keeperName = "keeper"

// pace is how often a process looks whether all are dead that it has killed, and tick how often it
// looks whether the host was suspended.
const (
	pace = 2 * time.Millisecond
	tick = 500 * time.Millisecond
)

// Keep is the keeper. It returns when no process of the command is left.
func Keep() error {
	// The kernel kills the command when the thread that has started it ends. The goroutine of main
	// keeps this one until the process ends.
	runtime.LockOSThread()
	syscall.CloseOnExec(ordersFD)
	syscall.CloseOnExec(reportsFD)
	orders, reports := os.NewFile(ordersFD, "orders"), os.NewFile(reportsFD, "reports")
	if !isPipe(orders) || !isPipe(reports) {
		return errors.New("is only for onerun itself to start")
	}
	k := &keeper{
		reports: json.NewEncoder(reports),
		exited:  make(chan syscall.WaitStatus, 1),
		alone:   make(chan struct{}),
		sender:  newSender(),
	}
	if err := k.start(json.NewDecoder(orders)); err != nil {
		return err
	}
	if k.pid == 0 {
		return nil
	}
	return k.keep()
}

// isPipe reports whether a file can be one that Start has passed. Whoever starts this program may
// leave other files open.
func isPipe(f *os.File) bool {
	if f == nil {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

type keeper struct {
	reports *json.Encoder
	orders  chan order
	exited  chan syscall.WaitStatus // of the command
	alone   chan struct{}           // closed when no child is left
	sender  *sender
	pid     int
	grace   time.Duration
	until   time.Duration // kill then
	killed  bool
}

// start starts the command, and what reads orders and waits for processes. k.pid is 0 if the
// command could not be started.
func (k *keeper) start(orders *json.Decoder) error {
	var first order
	err := orders.Decode(&first)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil // the first process has given up, or has died
	case err != nil || first.Start == nil:
		return fmt.Errorf("is only for onerun itself to start: %w", err)
	case now() >= time.Duration(first.Until):
		return nil // the host was suspended, and the lease has ended
	}
	if err := adopt(); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	s := first.Start
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: s.Group}
	dieWithParent(attr)
	args := make([]string, len(s.Args))
	for i, arg := range s.Args {
		args[i] = string(arg)
	}
	process, err := os.StartProcess(string(s.Path), args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   attr,
	})
	if err != nil {
		var errno syscall.Errno
		_ = errors.As(err, &errno)
		return k.reports.Encode(report{Failed: []byte(err.Error()), Errno: errno})
	}
	k.pid, k.grace, k.until = process.Pid, s.Grace, time.Duration(first.Until)
	k.sender.target = -k.pid
	if s.Group != 0 {
		k.sender.target = k.pid
	}
	_ = process.Release()
	leaveStreams()
	go k.wait()
	k.orders = make(chan order)
	go k.read(orders)
	_ = k.reports.Encode(report{PID: k.pid})
	return nil
}

// read passes orders on. If the first process dies, that is an order to kill.
func (k *keeper) read(orders *json.Decoder) {
	for {
		var o order
		if orders.Decode(&o) != nil {
			k.orders <- order{Until: 1}
			return
		}
		k.orders <- o
	}
}

// wait waits for all children: the command, and the orphans of its processes.
func (k *keeper) wait() {
	defer close(k.alone)
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return
		case pid == k.pid:
			k.exited <- status
		}
	}
}

// keep does as it is ordered, until nothing is left of the command.
func (k *keeper) keep() error {
	var result report
	exited, alone := k.exited, k.alone
	for gone := false; ; {
		rest := min(tick, max(k.until-now(), 0), k.sender.sendHeld())
		if k.killed || gone {
			rest = pace
		}
		select {
		case o := <-k.orders:
			k.obey(o, result.Exited)
		case s := <-k.sender.signals:
			k.sender.note(s)
		case status := <-exited:
			result = report{Exited: true, Code: status.ExitStatus()}
			if status.Signaled() {
				result.Code, result.Signal = 0, status.Signal()
			}
			k.sender.commandExited(k.grace)
			k.until = min(k.until, now()+k.grace)
		case <-alone:
			alone, gone = nil, true
		case <-time.After(rest):
		}
		if k.killed = k.killed || now() >= k.until; k.killed {
			signalAll(0, k.sender.target, syscall.SIGKILL, nil)
		}
		if gone && result.Exited && !signalAll(0, k.sender.target, 0, nil) {
			return k.reports.Encode(result)
		}
	}
}

// obey does as it is ordered. The end is not put off once the command has exited.
func (k *keeper) obey(o order, exited bool) {
	if until := time.Duration(o.Until); until != 0 && (!exited || until < k.until) {
		k.until = until
	}
	switch {
	case exited:
	case o.Signal != 0:
		k.sender.send(o.Signal)
	case o.Forward != 0:
		k.sender.hold(o.Forward)
	}
}

// leaveStreams leaves the standard input and output to the command alone: the process at the other
// end must see when the command closes them. The numbers stay in use, or a connection could get
// them.
func leaveStreams() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	for _, stream := range []*os.File{os.Stdin, os.Stdout} {
		_ = duplicate(int(null.Fd()), int(stream.Fd()))
	}
}
