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
)

// A lane is the way of scripts to one server. While a flight is out, what comes in waits, and goes out together as the
// next one, in one pipeline. A script that comes alone goes out at once, as a plain command.
type lane struct {
	client redis.UniversalClient

	mu      sync.Mutex
	queue   []*request
	flights int       // that are out
	last    time.Time // when the newest of them went out
	alarm   *time.Timer
}

// A request is a call on its way.
type request struct {
	ctx  context.Context
	call Call
	cmd  redis.Cmder
	make func(ctx context.Context, args ...any) redis.Cmder
	done func(cmd redis.Cmder, err error)
}

// send sends the request with the next flight. Its done is called once, soon after ctx has ended if the server answers
// other requests, and at the latest when the client gives up.
func (l *lane) send(r *request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	flight := l.board(time.Time{})
	l.mu.Unlock()
	if flight != nil {
		go l.fly(flight)
	}
}

// board returns the requests of the flight that may go out now, or nil. now is given when the alarm rings. l.mu must
// be held.
func (l *lane) board(now time.Time) (flight []*request) {
	switch {
	case len(l.queue) == 0:
		return nil
	case l.flights == 0:
	case l.flights < mostFlights && !now.IsZero() && now.Sub(l.last) >= lateAfter:
	default:
		if l.alarm == nil && l.flights < mostFlights {
			l.alarm = time.AfterFunc(lateAfter, l.ring)
		}
		return nil
	}
	l.flights++
	return l.take()
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

// ring is called when something has waited behind a flight for some time.
func (l *lane) ring() {
	l.mu.Lock()
	l.alarm = nil
	flight := l.board(time.Now())
	l.mu.Unlock()
	if flight != nil {
		l.fly(flight)
	}
}

// fly sends a flight, and one after the other what has come in meanwhile.
func (l *lane) fly(flight []*request) {
	for flight != nil {
		if len(flight) == 1 {
			l.sendAlone(flight[0])
		} else {
			l.sendTogether(flight)
		}
		l.mu.Lock()
		if len(l.queue) > 0 {
			flight = l.take()
		} else {
			flight = nil
			l.flights--
		}
		l.mu.Unlock()
	}
}

func (l *lane) sendAlone(r *request) {
	if r.ctx.Err() != nil {
		r.done(nil, r.ctx.Err())
		return
	}
	cmd := r.make(r.ctx, r.call.evalsha()...)
	err := l.client.Process(r.ctx, noRetry{cmd})
	if isNoScript(err) {
		cmd = r.make(r.ctx, r.call.eval()...)
		err = l.client.Process(r.ctx, noRetry{cmd})
	}
	r.done(cmd, err)
}

// sendTogether sends the requests in a pipeline, each of which has its own error, and once more, by their source, those of whose
// script the server does not know.
func (l *lane) sendTogether(flight []*request) {
	ctx, cancel := together(flight)
	defer cancel()
	l.pipeline(ctx, flight, Call.evalsha)
	var unknown []*request
	for _, r := range flight {
		if r.cmd != nil && isNoScript(r.cmd.Err()) {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 {
		l.pipeline(ctx, unknown, Call.eval)
	}
	for _, r := range flight {
		if r.cmd == nil {
			r.done(nil, r.ctx.Err())
		} else {
			r.done(r.cmd, r.cmd.Err())
		}
	}
}

// together returns a context for a flight, which ends when the last of its requests' contexts must have.
func together(flight []*request) (context.Context, context.CancelFunc) {
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

// pipeline sends those of the requests whose callers are still there.
func (l *lane) pipeline(ctx context.Context, requests []*request, args func(Call) []any) {
	pipe := l.client.Pipeline()
	for _, r := range requests {
		if r.cmd = nil; r.ctx.Err() == nil {
			r.cmd = r.make(ctx, args(r.call)...)
			_ = pipe.Process(ctx, noRetry{r.cmd})
		}
	}
	_, _ = pipe.Exec(ctx)
}
