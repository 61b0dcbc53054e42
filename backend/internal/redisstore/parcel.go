package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// What a server takes in one script.
const (
	allKeys  int32 = iota
	oneSlot        // a Cluster, perhaps behind what looks like one server
	noneElse       // one request's
)

// pack puts the requests into as few commands as can be.
func (l *lane) pack(requests []*request) (parcels []*parcel) {
	apart := l.apart.Load()
	var program *Program
	var joint []*request
	for _, r := range requests {
		switch of := r.call.of; {
		case of == nil || program != nil && of.program != program || apart == noneElse:
			parcels = append(parcels, &parcel{Command: r.call.Command, requests: []*request{r}})
		default:
			program, joint = of.program, append(joint, r)
		}
	}
	if apart == allKeys {
		return program.pack(parcels, joint, apart)
	}
	slices.SortStableFunc(joint, func(a, b *request) int { return a.inSlot() - b.inSlot() })
	for len(joint) > 0 {
		n := 1
		for n < len(joint) && joint[n].inSlot() == joint[0].inSlot() {
			n++
		}
		parcels = program.pack(parcels, joint[:n], apart)
		joint = joint[n:]
	}
	return parcels
}

// pack appends a parcel of the requests.
func (p *Program) pack(to []*parcel, requests []*request, apart int32) []*parcel {
	switch len(requests) {
	case 0:
		return to
	case 1:
		return append(to, &parcel{Command: requests[0].call.Command, requests: requests})
	default:
		command, ordered := p.join(requests)
		return append(to, &parcel{Command: command, requests: ordered, joint: true, apart: apart})
	}
}

// deliver sends the parcels, each of which has its own error, and once more, by their source, those of whose script the
// server does not know, and in smaller ones those which it does not take together.
func (l *lane) deliver(ctx context.Context, client redis.UniversalClient, parcels []*parcel) {
	pipeline(ctx, client, parcels, (*Command).evalsha)
	var unknown []*parcel
	for _, p := range parcels {
		if isNoScript(p.cmd.Err()) {
			unknown = append(unknown, p)
		}
	}
	pipeline(ctx, client, unknown, (*Command).eval)
	for _, p := range parcels {
		if !p.joint {
			continue
		}
		switch err := p.cmd.Err(); {
		case keysApart(err):
			l.apart.CompareAndSwap(p.apart, p.apart+1)
		case refusesCommands(err):
			l.apart.Store(noneElse)
		default:
			continue
		}
		p.parts = l.pack(p.requests)
		l.deliver(ctx, client, p.parts)
	}
}

// pipeline sends the parcels, one alone as a plain command.
func pipeline(ctx context.Context, client redis.UniversalClient, parcels []*parcel, args func(*Command) []any) {
	for _, p := range parcels {
		p.cmd = redis.NewCmd(ctx, args(&p.Command)...)
		p.once = noRetry{p.cmd}
	}
	switch len(parcels) {
	case 0:
	case 1:
		_ = client.Process(ctx, &parcels[0].once)
	default:
		pipe := client.Pipeline()
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
	apart    int32      // what the server was not thought to take when it was packed
	cmd      *redis.Cmd
	once     noRetry   // around cmd
	parts    []*parcel // what was sent in its place
}

// worst returns the error that says that a connection is no good, if there is one.
func worst(parcels []*parcel) error {
	for _, p := range parcels {
		err := p.cmd.Err()
		if p.parts != nil {
			err = worst(p.parts)
		}
		if spoilt(err) {
			return err
		}
	}
	return nil
}

// handOut gives each request its answer.
func (l *lane) handOut(p *parcel) {
	for _, part := range p.parts {
		l.handOut(part)
	}
	if p.parts != nil {
		return
	}
	err := p.cmd.Err()
	if l.moved != nil && isMoved(err) {
		for _, r := range p.requests {
			l.moved(r)
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
