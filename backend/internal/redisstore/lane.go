package redisstore

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// largestFlight bounds a flight, so that no answer is far behind its request.
	largestFlight = 128
	// lateAfter is how long a flight may be out before what waits behind it goes out by itself: its connection may be dead,
	// or the server frozen. There are mostFlights then.
	lateAfter   = 50 * time.Millisecond
	mostFlights = 8
	// idle is for how long the pilot of a lane waits for more: a goroutine that has grown its stack for go-redis is worth keeping.
	idle = 100 * time.Millisecond
)

// A lane is the way of scripts to one server. While a flight is out, what comes in waits, and goes out together as the
// next one, in one pipeline. A script that comes alone goes out at once, as a plain command.
type lane struct {
	client redis.UniversalClient

	mu      sync.Mutex
	queue   []*request
	flights int           // that are out, or about to be
	last    time.Time     // when the newest of them went out
	parked  bool          // a pilot waits for more
	call    chan struct{} // calls it
	alarm   *time.Timer
}

func newLane(client redis.UniversalClient) *lane {
	return &lane{client: client, call: make(chan struct{}, 1)}
}

// A request is a call on its way.
type request struct {
	ctx  context.Context
	call Call
	cmd  redis.Cmder
	once noRetry // around cmd
	make func(ctx context.Context, args ...any) redis.Cmder
	done func(r *request, err error) // r.cmd has the answer
}

// command makes the request's command, and returns it as one that is sent once.
func (r *request) command(ctx context.Context, args []any) redis.Cmder {
	r.cmd = r.make(ctx, args...)
	r.once = noRetry{r.cmd}
	return &r.once
}

// send sends the request with the next flight. Its done is called once, soon after ctx has ended if the server answers
// other requests, and at the latest when the client gives up.
func (l *lane) send(r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, r)
	switch {
	case l.flights > 0:
		if l.alarm == nil && l.flights < mostFlights {
			l.alarm = time.AfterFunc(lateAfter, l.ring)
		}
	case l.parked:
		l.parked = false
		l.flights++
		l.call <- struct{}{} // has room, as nobody else calls a pilot that is not parked
	default:
		l.flights++
		go l.pilot(l.take())
	}
}

// ring is called when something may have waited behind a flight for some time.
func (l *lane) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm = nil
	switch waited := time.Since(l.last); {
	case len(l.queue) == 0 || l.flights >= mostFlights:
	case waited < lateAfter:
		l.alarm = time.AfterFunc(lateAfter-waited, l.ring)
	default:
		l.flights++
		go l.pilot(l.take())
		if l.flights < mostFlights {
			l.alarm = time.AfterFunc(lateAfter, l.ring)
		}
	}
}

// take takes the next flight's requests from the queue. l.mu must be held.
func (l *lane) take() (flight []*request) {
	if len(l.queue) <= largestFlight {
		flight, l.queue = l.queue, nil
	} else {
		flight, l.queue = l.queue[:largestFlight:largestFlight], l.queue[largestFlight:]
	}
	l.last = time.Now()
	return flight
}

// pilot sends a flight, and what comes in meanwhile, until nothing has come in for some time.
func (l *lane) pilot(flight []*request) {
	rest := time.NewTimer(idle)
	defer rest.Stop()
	for {
		if len(flight) > 0 { // it may be out with another pilot
			l.fly(flight)
		}
		l.mu.Lock()
		if len(l.queue) > 0 {
			flight = l.take()
			l.mu.Unlock()
			continue
		}
		l.flights--
		if l.parked { // another one is enough
			l.mu.Unlock()
			return
		}
		l.parked = true
		l.mu.Unlock()

		rest.Reset(idle)
		select {
		case <-l.call:
		case <-rest.C:
			l.mu.Lock()
			if l.parked {
				l.parked = false
				l.mu.Unlock()
				return
			}
			l.mu.Unlock()
			<-l.call // it was called at this very moment
		}
		l.mu.Lock()
		flight = l.take()
		l.mu.Unlock()
	}
}

// fly sends a flight and hands out the answers.
func (l *lane) fly(flight []*request) {
	if len(flight) == 1 {
		r := flight[0]
		r.done(r, l.sendAlone(r))
		return
	}
	l.sendTogether(flight)
	for _, r := range flight {
		if r.cmd == nil {
			r.done(r, r.ctx.Err())
		} else {
			r.done(r, r.cmd.Err())
		}
	}
}

func (l *lane) sendAlone(r *request) error {
	if r.ctx.Err() != nil {
		return r.ctx.Err()
	}
	err := l.client.Process(r.ctx, r.command(r.ctx, r.call.evalsha()))
	if isNoScript(err) {
		err = l.client.Process(r.ctx, r.command(r.ctx, r.call.eval()))
	}
	return err
}

// sendTogether sends the requests in a pipeline, each of which has its own error, and once more, by their source, those of whose
// script the server does not know.
func (l *lane) sendTogether(flight []*request) {
	ctx, cancel := lastOf(flight)
	defer cancel()
	l.pipeline(ctx, flight, (*Call).evalsha)
	var unknown []*request
	for _, r := range flight {
		if r.cmd != nil && isNoScript(r.cmd.Err()) {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 {
		l.pipeline(ctx, unknown, (*Call).eval)
	}
}

// pipeline sends those of the requests whose callers are still there.
func (l *lane) pipeline(ctx context.Context, requests []*request, args func(*Call) []any) {
	pipe := l.client.Pipeline()
	for _, r := range requests {
		if r.cmd = nil; r.ctx.Err() == nil {
			_ = pipe.Process(ctx, r.command(ctx, args(&r.call)))
		}
	}
	_, _ = pipe.Exec(ctx)
}

// lastOf returns a context for a flight, which ends when the last of its requests' contexts must have.
func lastOf(flight []*request) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, r := range flight {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(r.ctx), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(flight[0].ctx), last)
}
