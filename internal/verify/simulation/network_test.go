package simulation_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// A link is a connection between a process and a server. What goes over it is late, held up, or
// lost.
//
// The client's end and the server's are pipes of their own, so that a request which is on its way
// when the client gives up still arrives, as on a real network.
type link struct {
	name      string
	world     *world
	process   *process
	server    *server
	near, far net.Conn    // towards the process, and towards the server
	hole      atomic.Bool // swallows all that comes
}

// dial connects a process to a server. It takes no time, nor does the greeting, HELLO and its
// answer, which nothing befalls: go-redis' PubSub holds a mutex until then, and a goroutine that
// waits for a mutex stops a bubble's clock.
func (w *world) dial(p *process, s *server) (net.Conn, error) {
	name := fmt.Sprintf("%s>%s#%d", p.name, s.name, p.dials[s.number].Add(1))
	if s.isAway() {
		w.trace.add("%s refused", name)
		return nil, errRefused
	}
	client, near := net.Pipe()
	l := &link{name: name, world: w, process: p, server: s, near: near}
	s.connect(l)
	l.carry(l.near, l.far, w.rng(name+" requests"), false)
	l.carry(l.far, l.near, w.rng(name+" replies"), true)
	return lateTimers{client, upTo(w.rng(name+" time-outs"), 100*time.Microsecond)}, nil
}

// lateTimers is a connection whose time-outs come a moment after those of contexts, which would
// end at the same instant: the client would do one thing or the other. The moment is another one
// for each connection, as several calls may have one context.
type lateTimers struct {
	net.Conn
	by time.Duration
}

func (c lateTimers) SetReadDeadline(t time.Time) error  { return c.Conn.SetReadDeadline(c.late(t)) }
func (c lateTimers) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.late(t)) }

func (c lateTimers) late(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(c.by)
}

func (l *link) close() {
	_ = l.near.Close()
	_ = l.far.Close()
}

// carry carries messages one way, requests or replies, until an end is closed. Messages are
// received at once and delivered when their time has come. A pipe delivers a message as a whole,
// because each end writes it at once.
func (l *link) carry(from, to net.Conn, rng *rand.Rand, replies bool) {
	queue := make(chan []byte, 100)
	l.world.carriers.Add(2)
	go func() {
		defer l.world.carriers.Add(-1)
		defer close(queue)
		receive(from, queue)
	}()
	go func() {
		defer l.world.carriers.Add(-1)
		greeting := true
		for message := range queue {
			if !greeting && !l.befall(rng, replies) {
				break
			}
			greeting = false
			if !l.hole.Load() && !l.deliver(message, to, replies) {
				break
			}
		}
		_ = to.Close()
		for range queue { // until the other end is closed too
		}
	}()
}

// largest is the size of the largest message: several scripts by their source. A larger one would
// arrive in parts, and audit would see only the last part of what a server has carried out.
const largest = 64 << 10

func receive(from net.Conn, queue chan<- []byte) {
	message := make([]byte, largest)
	for {
		n, err := from.Read(message)
		if err != nil {
			return
		}
		queue <- bytes.Clone(message[:n])
	}
}

// befall lets a message take its time, and has happen to the connection what may. It returns false
// if it is cut.
func (l *link) befall(rng *rand.Rand, replies bool) bool {
	fate := l.world.draw(rng)
	frozen := &l.server.frozen
	if replies {
		frozen = new(instant)
	}
	l.world.delay(rng, l.process, frozen)
	switch fate {
	case cut:
		l.world.trace.add("%s is cut, and %s lost", l.name, what(replies))
		l.close()
		return false
	case swallowed:
		l.world.trace.add("%s swallows %s and all that comes after", l.name, what(replies))
		l.hole.Store(true)
	case arrives:
	}
	return true
}

// deliver delivers a message and returns false if the other end has gone.
func (l *link) deliver(message []byte, to net.Conn, replies bool) bool {
	if replies {
		_, err := to.Write(message)
		return err == nil
	}
	l.server.turn <- struct{}{}
	defer func() { <-l.server.turn }()
	if l.server.isAway() {
		return false
	}
	l.server.setClock()
	l.server.forget(l.process)
	if script := l.world.mutate.script; script != nil {
		message = script.Replace(message)
	}
	_, err := to.Write(message)
	time.Sleep(max(l.world.service, time.Nanosecond)) // until the server has carried it out
	l.world.requests.Add(1)
	if l.world.service == 0 {
		l.server.audit(l.name, message)
	}
	return err == nil
}

func what(reply bool) string {
	if reply {
		return "a reply"
	}
	return "a request"
}

// delay sleeps until a message of the process arrives: not before the instant until which its
// receiver is frozen. Every sleep is a random number of nanoseconds, so that no two things happen
// at the same instant and the order of all is the seed's.
func (w *world) delay(rng *rand.Rand, p *process, frozen *instant) {
	d := 50*time.Microsecond + upTo(rng, time.Millisecond)
	if !w.calm() && chance(rng, w.slow) {
		d += upTo(rng, 300*time.Millisecond)
	}
	for d > 0 {
		time.Sleep(d)
		until := later(frozen.get(), later(p.cutOff.get(), p.stopped.get()))
		d = 0
		if held := time.Until(until); held > 0 {
			d = held + upTo(rng, time.Millisecond)
		}
	}
}

// fate is what happens to a message.
type fate uint8

const (
	arrives fate = iota
	cut          // lost, and the connection with it
	swallowed
)

// draw draws the fate of a message.
func (w *world) draw(rng *rand.Rand) fate {
	x := rng.Float64()
	switch {
	case w.calm() || x >= w.loss:
		return arrives
	case x < w.loss/4:
		return swallowed
	}
	return cut
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func upTo(rng *rand.Rand, most time.Duration) time.Duration {
	return 1 + time.Duration(rng.Int64N(int64(most)))
}

func chance(rng *rand.Rand, share float64) bool { return rng.Float64() < share }
