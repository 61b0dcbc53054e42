package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// maxBatch bounds a batch, so that no answer comes long after its request could have had one.
const maxBatch = 128

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

// empty drops the requests, which have their answers or go again.
func (c *command) empty() {
	clear(c.requests)
	c.requests = c.requests[:0]
}

func (c *command) takes(r *request, slot string, mode keyMode) bool {
	first := c.requests[0]
	return !mode.alone() && len(c.requests) < maxBatch && c.slot == slot &&
		first.bySource == r.bySource && first.call.canShare(&r.call)
}

// exec runs the commands in one pipeline. Each has its own error. If replicas are to acknowledge
// them, WAIT follows on the same connection: it answers for the connection on which it comes, and
// would say on another one that all is well. Its error is returned.
func exec(ctx context.Context, client client, commands []command) error {
	acks := commands[0].requests[0].call.Acks
	acked := acks.Replicas > 0
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
	keys := len(c.requests)*s.of.Keys + len(call.FurtherKeys)
	to = append(to, keys)
	for _, r := range c.requests {
		for i := range s.of.Keys {
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
		for i := range s.of.Args {
			to = append(to, c.text(&r.call.Args[i]))
		}
	}
	shared := s.of.Shared
	if len(call.Record) == 0 && len(call.FurtherArgs) == 0 {
		for shared > 0 && call.Shared[shared-1] == "" {
			shared-- // the script takes what is missing at the end for ""
		}
	}
	for i := range shared {
		to = append(to, c.text(&call.Shared[i]))
	}
	if s.of.Record && (len(call.Record) > 0 || len(call.FurtherArgs) > 0) {
		to = append(to, call.Record)
	}
	return append(to, call.FurtherArgs...)
}

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
