package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// pack puts the requests into as few commands as can be.
func (l *lane) pack(requests []*request) (parcels []*parcel) {
	var program *Program
	var joint []*request
	for _, r := range requests {
		switch of := r.call.of; {
		case of == nil || program != nil && of.program != program || l.apart.Load():
			parcels = append(parcels, &parcel{Command: r.call.Command, requests: []*request{r}})
		default:
			program, joint = of.program, append(joint, r)
		}
	}
	switch len(joint) {
	case 0:
	case 1:
		parcels = append(parcels, &parcel{Command: joint[0].call.Command, requests: joint})
	default:
		command, ordered := program.join(joint)
		parcels = append(parcels, &parcel{Command: command, requests: ordered, joint: true})
	}
	return parcels
}

// deliver sends the parcels, each of which has its own error, and once more, by their source, those of whose script the
// server does not know, and one by one those whose keys it does not take together.
func (l *lane) deliver(ctx context.Context, parcels []*parcel) {
	l.pipeline(ctx, parcels, (*Command).evalsha)
	var unknown []*parcel
	for _, p := range parcels {
		if isNoScript(p.cmd.Err()) {
			unknown = append(unknown, p)
		}
	}
	l.pipeline(ctx, unknown, (*Command).eval)
	for _, p := range parcels {
		if p.joint && keysApart(p.cmd.Err()) {
			l.apart.Store(true)
			p.parts = l.pack(p.requests)
			l.deliver(ctx, p.parts)
		}
	}
}

// pipeline sends the parcels, one alone as a plain command.
func (l *lane) pipeline(ctx context.Context, parcels []*parcel, args func(*Command) []any) {
	for _, p := range parcels {
		p.cmd = redis.NewCmd(ctx, args(&p.Command)...)
		p.once = noRetry{p.cmd}
	}
	switch len(parcels) {
	case 0:
	case 1:
		_ = l.client.Process(ctx, &parcels[0].once)
	default:
		pipe := l.client.Pipeline()
		for _, p := range parcels {
			_ = pipe.Process(ctx, &p.once)
		}
		_, _ = pipe.Exec(ctx)
	}
}

// A parcel is a command with one request, or several that go together.
type parcel struct {
	Command
	requests []*request // in the order of the answers
	joint    bool       // there is a list of answers
	cmd      *redis.Cmd
	once     noRetry   // around cmd
	parts    []*parcel // what was sent in its place
}

// handOut gives each request its answer.
func (p *parcel) handOut() {
	err := p.cmd.Err()
	if p.parts != nil {
		for _, part := range p.parts {
			part.handOut()
		}
		return
	}
	if !p.joint {
		p.requests[0].finish(p.cmd.Val(), err)
		return
	}
	answers, _ := p.cmd.Val().([]any)
	for i, r := range p.requests {
		switch {
		case err != nil:
			r.finish(nil, err)
		case i >= len(answers):
			r.finish(nil, ErrAnswer)
		default:
			r.finish(answerOrRefusal(answers[i]))
		}
	}
}

// answerOrRefusal tells the answer of one of many calls from its error, which is a text, see together.lua.
func answerOrRefusal(answer any) (any, error) {
	switch answer := answer.(type) {
	case string:
		return nil, refusal(answer)
	case error:
		return nil, answer
	default:
		return answer, nil
	}
}

// A refusal is an error that a server has put in an answer. It is a redis.Error.
type refusal string

func (r refusal) Error() string { return string(r) }

// RedisError is redis.Error's.
func (refusal) RedisError() {}
