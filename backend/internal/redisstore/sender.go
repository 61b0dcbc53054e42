package redisstore

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A sender is what sending a batch needs. It can be used for one batch after the other.
type sender struct {
	commands []command
	latest   map[string]int // the last command that has a key, if several commands may share it
	pending  []*request
}

// send sends a batch, and finishes its requests. It returns a connError if the connection must not
// be used again, or nil.
//
// A request goes again, by its source, if the server does not know its script; by itself, or with
// fewer others, if the server does not take several keys together; and by the Cluster's client if
// its key has moved.
func (e *endpoint) send(ctx context.Context, client client, with *sender, batch []*request) (broken error) {
	for len(batch) > 0 {
		mode := keyMode(e.mode.Load())
		if mode&unproven != 0 && len(batch) > 1 {
			e.proveSoon()
		}
		commands := with.join(batch, mode)
		sent := time.Now()
		acks := exec(ctx, client, commands)
		e.slow.took(time.Since(sent))
		again := with.pending[:0]
		for i := range commands {
			c := &commands[i]
			err := c.cmd.Err()
			if connError(err) {
				broken = err
				if any(client) == any(e.client) {
					e.slow.note(ctx, err) // before the calls that are made again
				}
			}
			switch {
			case isNoScript(err) && !c.requests[0].bySource:
				alive := dropAbandoned(c.requests)
				for _, r := range alive {
					r.bySource = true
				}
				again = append(again, alive...)
			case refusesLua(err) && !c.literal:
				e.setMode(oneCall | literalKeys)
				again = append(again, c.requests...)
			case keysApart(err) && mode.stricter() != mode:
				e.mode.CompareAndSwap(int32(mode), int32(mode.stricter()))
				again = append(again, c.requests...)
			case e.moved != nil && isElsewhere(err):
				for _, r := range c.requests {
					e.moved(r, err)
				}
			default:
				c.finish(acks)
			}
			c.empty()
		}
		with.pending = again
		batch = again
	}
	with.clear()
	return broken
}

// sendSafely sends a batch. If a hook of the client panics, callers that wait do as well, and the
// other requests get an error. They also get it if a hook ends the goroutine.
func (e *endpoint) sendSafely(ctx context.Context, client client, with *sender, batch []*request) (broken error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		broken = errAborted
		if p := recover(); p != nil {
			with.abort(&rediserr.HookPanic{Value: p})
			return
		}
		with.abort(errAborted)
	}()
	broken = e.send(ctx, client, with, batch)
	returned = true
	return broken
}

// sendByApp sends a batch by the application's client, or by one of slowMode.
func (e *endpoint) sendByApp(ctx context.Context, batch []*request) {
	client, p := e.client, e.slow
	renewals := batch[0].call.Op == driver.OpRenew
	if p != nil && (renewals || p.isSlow()) {
		var cancel context.CancelFunc
		ctx, cancel = withDeadline(ctx, e.client.(*redis.Client))
		defer cancel()
		if client = p.client(); renewals {
			client = p.unlimited()
		}
	}
	p.warm(e.sendSafely(ctx, client, new(sender), batch))
}

// errAborted stands for a hook of the client that has panicked or ended the goroutine.
var errAborted = errors.New("a hook of the client has not returned")

// join puts the requests into as few commands as the server takes. Requests for one key stay in
// their order.
func (s *sender) join(batch []*request, mode keyMode) []command {
	s.clear()
	for _, r := range batch {
		slot := "" // any
		if mode&oneSlot != 0 {
			slot = r.call.slot()
		}
		n := 0
		if len(s.commands) > 1 {
			n = s.latest[r.call.Keys[0]]
		}
		for n < len(s.commands) && !s.commands[n].takes(r, slot, mode) {
			n++
		}
		if n == len(s.commands) {
			s.add(slot)
			s.commands[n].literal = mode&literalKeys != 0
		}
		s.commands[n].requests = append(s.commands[n].requests, r)
		if len(batch) > 1 {
			if s.latest == nil {
				s.latest = map[string]int{}
			}
			s.latest[r.call.Keys[0]] = n
		}
	}
	return s.commands
}

func (s *sender) add(slot string) {
	if len(s.commands) < cap(s.commands) {
		s.commands = s.commands[:len(s.commands)+1]
	} else {
		s.commands = append(s.commands, command{})
	}
	s.commands[len(s.commands)-1].slot = slot
}

// clear drops what the last batch has left, but not the room that it took.
func (s *sender) clear() {
	for i := range s.commands {
		c := &s.commands[i]
		c.empty()
		clear(c.args)
		*c = command{requests: c.requests, args: c.args[:0]}
	}
	s.commands = s.commands[:0]
	clear(s.latest)
}

// abort finishes the requests that have no answer, because sending has not returned.
func (s *sender) abort(err error) {
	for i := range s.commands {
		for _, r := range s.commands[i].requests {
			r.finish(nil, err)
		}
	}
	s.clear()
}
