package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A client is a client of go-redis or one of its connections.
type client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

// A sender is what sending a batch needs. It can be used for one batch after the other.
type sender struct {
	commands []command
	latest   map[string]int // the last command that has a key, if several commands may share it
	pending  []*request
}

// A command runs a script for one request, or for several that share it.
type command struct {
	requests []*request
	literal  bool   // the server takes the literal form of scripts only
	slot     string // of the keys of all requests, or "" if it does not matter
	args     []any
	cmd      redis.Cmd
	once     noRetry // around cmd
}

var evalsha, eval any = "evalsha", "eval"

// send sends a batch, and finishes its requests. It returns the error that says that the
// connection is no good, or nil.
//
// A request goes again, by its source, if the server does not know its script; by itself, or with
// fewer others, if the server does not take several keys together; and by the Cluster's client if
// its key has moved.
func (s *server) send(ctx context.Context, client client, with *sender, batch []*request, acked bool) (spoils error) {
	for len(batch) > 0 {
		mode := keyMode(s.mode.Load())
		if mode&unproven != 0 && len(batch) > 1 {
			s.proveSoon()
		}
		commands := with.join(batch, mode)
		sent := time.Now()
		acks := s.exec(ctx, client, commands, acked)
		s.patience.took(time.Since(sent))
		again := with.pending[:0]
		for i := range commands {
			c := &commands[i]
			err := c.cmd.Err()
			if spoilt(err) {
				spoils = err
				if any(client) == any(s.client) {
					s.patience.note(ctx, err) // before the calls that are made again
				}
			}
			switch {
			case isNoScript(err) && !c.requests[0].bySource:
				alive := stillWaited(c.requests)
				for _, r := range alive {
					r.bySource = true
				}
				again = append(again, alive...)
			case refusesLua(err) && !c.literal:
				s.setMode(oneCall | literalKeys)
				again = append(again, c.requests...)
			case keysApart(err) && mode.stricter() != mode:
				s.mode.CompareAndSwap(int32(mode), int32(mode.stricter()))
				again = append(again, c.requests...)
			case s.moved != nil && isElsewhere(err):
				for _, r := range c.requests {
					s.moved(r, err)
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
	return spoils
}

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

// add appends an empty command.
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

// empty drops the requests, which have their answers or go again.
func (c *command) empty() {
	clear(c.requests)
	c.requests = c.requests[:0]
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

// takes reports whether the request can share the command.
func (c *command) takes(r *request, slot string, mode keyMode) bool {
	first := c.requests[0]
	return !mode.alone() && len(c.requests) < largestBatch && c.slot == slot &&
		first.bySource == r.bySource && first.call.canShare(&r.call)
}

// exec runs the commands in one pipeline. Each has its own error. If replicas are to acknowledge
// them, WAIT follows on the same connection: it answers for the connection on which it comes, and
// would say on another one that all is well. Its error is returned.
func (s *server) exec(ctx context.Context, client client, commands []command, acked bool) error {
	for i := range commands {
		c := &commands[i]
		c.args = c.appendArgs(c.args)
		c.cmd = *redis.NewCmd(ctx, c.args...)
		c.once = noRetry{&c.cmd}
	}
	if len(commands) == 1 && !acked {
		_ = client.Process(ctx, &commands[0].once)
		return nil
	}
	pipe := client.Pipeline()
	for i := range commands {
		_ = pipe.Process(ctx, &commands[i].once)
	}
	acks := commands[0].requests[0].call.Acks
	wait := redis.NewIntCmd(ctx, "wait", acks.Replicas, Milliseconds(acks.Within))
	if acked {
		_ = pipe.Process(ctx, wait)
	}
	_, _ = pipe.Exec(ctx)
	switch got, want := wait.Val(), int64(acks.Replicas); {
	case !acked:
		return nil
	case wait.Err() != nil:
		return wait.Err()
	case got < want:
		return shortOfAcks{got, want}
	}
	return nil
}

// appendArgs appends the arguments of the command: those of the script in the order of its layout.
func (c *command) appendArgs(to []any) []any {
	first := c.requests[0]
	call := &first.call
	s := call.Script
	switch {
	case c.literal:
		to = c.appendLiteral(to)
	case first.bySource:
		to = append(to, eval, s.source)
	default:
		to = append(to, evalsha, s.sha)
	}
	keys := len(c.requests)*s.keys + len(call.FurtherKeys)
	to = append(to, keys)
	for _, r := range c.requests {
		for i := range s.keys {
			if i == 0 && r.call.Prefix != "" {
				r.key.prefix, r.key.rest = r.call.Prefix, r.call.Keys[0]
				to = append(to, &r.key)
			} else {
				to = append(to, c.text(&r.call.Keys[i]))
			}
		}
	}
	for i := range call.FurtherKeys {
		to = append(to, call.FurtherKeys[i])
	}
	for _, r := range c.requests {
		for i := range s.args {
			to = append(to, c.text(&r.call.Args[i]))
		}
	}
	shared := s.shared
	if len(call.Record) == 0 && len(call.FurtherArgs) == 0 {
		for shared > 0 && call.Shared[shared-1] == "" {
			shared-- // which need not be sent at the end
		}
	}
	for i := range shared {
		to = append(to, c.text(&call.Shared[i]))
	}
	if s.record && (len(call.Record) > 0 || len(call.FurtherArgs) > 0) {
		to = append(to, call.Record)
	}
	return append(to, call.FurtherArgs...)
}

// appendLiteral appends the literal form of the command's script.
func (c *command) appendLiteral(to []any) []any {
	first := c.requests[0]
	source, sha := first.call.Script.Literal()
	if first.bySource {
		return append(to, eval, source)
	}
	return append(to, evalsha, sha)
}

// text returns a text as an argument. For many it is a pointer, which needs no room of its own. For
// one it is a string, as hooks show it.
func (c *command) text(text *string) any {
	if len(c.requests) > 1 {
		return text
	}
	return *text
}

// finish gives each request its answer. acks is why an answer may not count, or nil.
func (c *command) finish(acks error) {
	err := c.cmd.Err()
	if len(c.requests) == 1 {
		if err == nil {
			err = acks
		}
		c.requests[0].finish(c.cmd.Val(), err)
		return
	}
	answers, _ := c.cmd.Val().([]any)
	for i, r := range c.requests {
		switch {
		case err != nil:
			r.finish(nil, err)
		case i >= len(answers):
			r.finish(nil, ErrAnswer)
		default:
			r.finishWith(answers[i], acks)
		}
	}
}

// finishWith gives the request one of many answers: an error is a text there, see batch.lua.
func (r *request) finishWith(answer any, acks error) {
	switch a := answer.(type) {
	case string:
		r.finish(nil, refusal(a))
	case error:
		r.finish(nil, a)
	default:
		r.finish(answer, acks)
	}
}

// A refusal is an error that a server has put in an answer. It is a redis.Error.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError implements redis.Error.
func (refusal) RedisError() {}

// Acks asks that a number of replicas acknowledge a write within a time. The zero value asks for
// none.
type Acks struct {
	Replicas int
	Within   time.Duration
}

// shortOfAcks says that fewer replicas than asked for have a write.
type shortOfAcks struct{ got, want int64 }

func (e shortOfAcks) Error() string {
	return fmt.Sprintf("%d of %d replicas have acknowledged it", e.got, e.want)
}

func isShortOfAcks(err error) bool {
	var short shortOfAcks
	return errors.As(err, &short)
}
