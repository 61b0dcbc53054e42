//go:build unix

package child

import (
	"os"
	"syscall"
	"time"
)

// A forwarded signal is held, because equal ones of about the same time are one request, and
// because the keeper may get it, too. It was sent to all processes if the keeper has got it
// meanwhile, or not long before: the first process may be slow.
const (
	holdFor   = 100 * time.Millisecond
	notBefore = 2 * time.Second
)

// A sender sends the command its signals. Each request is one signal to each process: for some
// programs, a second one means that they must not clean up. A service manager may signal all
// processes of a unit, so that the command has a signal before the first process forwards it.
type sender struct {
	signals chan os.Signal                   // that the keeper itself gets
	target  int                              // of signals: see signalAll
	got     map[syscall.Signal]time.Duration // when the keeper got them
	held    map[syscall.Signal]time.Duration // forwarded ones, and until when
	asked   map[int]bool                     // processes, or the target, that have got SIGTERM
	restAt  time.Duration                    // when what it has left gets SIGTERM, or 0
}

// newSender returns a sender. From then on, no signal ends this process. The command ignores none.
func newSender() *sender {
	s := &sender{
		signals: make(chan os.Signal, 64),
		got:     map[syscall.Signal]time.Duration{},
		held:    map[syscall.Signal]time.Duration{},
		asked:   map[int]bool{},
	}
	CatchSignals(s.signals)
	return s
}

// send sends the signal to the command.
func (s *sender) send(signal syscall.Signal) {
	if signal == syscall.SIGTERM {
		s.ask(s.target)
	}
	delete(s.held, signal)
	_ = syscall.Kill(s.target, signal)
}

// ask notes that the processes that a signal to target reaches get SIGTERM. 0 means all.
func (s *sender) ask(target int) {
	for _, pid := range members(target) {
		s.asked[pid] = true
	}
	s.asked[s.target] = true // for systems that do not say which they are
}

// note notes a signal that the keeper has got. All processes have got it.
func (s *sender) note(signal os.Signal) {
	n, ok := signal.(syscall.Signal)
	if !ok {
		return
	}
	s.got[n] = now()
	if n == syscall.SIGTERM {
		s.ask(0)
	}
}

// hold has the signal sent after a while, unless the command has got it.
func (s *sender) hold(signal syscall.Signal) {
	if _, held := s.held[signal]; !held {
		s.held[signal] = now() + holdFor
	}
}

// commandExited has the processes that are left asked to end, after a while as well, and within
// their grace period. Nothing else is sent to them.
func (s *sender) commandExited(grace time.Duration) {
	s.restAt = now() + min(holdFor, grace/4)
	s.target = min(s.target, 0) // the ID may be another process's soon
	clear(s.held)
}

// sendHeld sends what was held for long enough. It returns for how long to hold the rest.
func (s *sender) sendHeld() (rest time.Duration) {
	for len(s.signals) > 0 {
		s.note(<-s.signals)
	}
	rest = tick
	for signal, until := range s.held {
		if left := until - now(); left > 0 {
			rest = min(rest, left)
			continue
		}
		delete(s.held, signal)
		at, got := s.got[signal]
		delete(s.got, signal)
		if !got || at < until-holdFor-notBefore {
			s.send(signal)
		}
	}
	switch left := s.restAt - now(); {
	case s.restAt == 0:
	case left > 0:
		rest = min(rest, left)
	default:
		s.restAt = 0
		signalAll(0, s.target, syscall.SIGTERM, s.asked)
	}
	return rest
}
