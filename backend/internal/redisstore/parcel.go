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

// pack puts the requests into as few commands as can be. Those of one script have their claims
// first: a claim that comes behind a release of its key goes into a further script, so that it
// finds the key free.
func (l *lane) pack(requests []*request) (parcels []*parcel) {
	apart := l.apart.Load()
	var program *Program
	var joint, late []*request
	var given, behind keySet
	for _, r := range requests {
		of := r.call.of
		if of == nil || program != nil && of.program != program || apart == noneElse {
			parcels = append(parcels, &parcel{Command: r.call.Command, requests: []*request{r}})
			continue
		}
		program = of.program
		key := r.call.texts[0]
		switch {
		case behind.has(key, late), of == program.acquire && given.has(key, joint):
			behind.add(key)
			late = append(late, r)
			continue
		case of == program.release:
			given.add(key)
		}
		joint = append(joint, r)
	}
	parcels = l.packJoint(parcels, program, joint, apart)
	if len(late) > 0 {
		parcels = append(parcels, l.pack(late)...)
	}
	return parcels
}

// packJoint appends parcels of requests that can go together, as far as the server takes their
// keys together.
func (l *lane) packJoint(parcels []*parcel, program *Program, joint []*request, apart int32) []*parcel {
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

// A keySet says quickly of most keys that they are not among those of some requests.
type keySet [16]uint64

// bit returns where the key is noted.
func (*keySet) bit(key string) (word int, bit uint64) {
	h := uint(len(key))
	for i := max(0, len(key)-8); i < len(key); i++ {
		h = h*31 + uint(key[i])
	}
	return int(h / 64 % 16), 1 << (h % 64)
}

func (s *keySet) add(key string) {
	word, bit := s.bit(key)
	s[word] |= bit
}

// has reports whether the key was added. It is that of one of the requests then.
func (s *keySet) has(key string, of []*request) bool {
	word, bit := s.bit(key)
	return s[word]&bit != 0 && slices.ContainsFunc(of, func(r *request) bool { return r.call.texts[0] == key })
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

// deliver sends the parcels, each of which has its own error, and once more, by their source,
// those of whose script the server does not know, and in smaller ones those which it does not take
// together.
func (l *lane) deliver(ctx context.Context, client redis.UniversalClient, parcels []*parcel) {
	pipeline(ctx, client, parcels, (*Command).evalsha)
	var unknown []*parcel
	for _, p := range parcels {
		if !isNoScript(p.cmd.Err()) {
			continue
		}
		if alive := stillWaited(p.requests); len(alive) < len(p.requests) {
			p.parts = append([]*parcel{}, l.pack(alive)...) // not nil, also if there are none
			l.deliver(ctx, client, p.parts)
		} else {
			unknown = append(unknown, p)
		}
	}
	pipeline(ctx, client, unknown, (*Command).eval)
	for _, p := range parcels {
		if !p.joint || p.parts != nil {
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

// stillWaited finishes the requests whose contexts have ended, and returns the others. What is
// sent again for nobody would only have to be undone: after a freeze, that may be much.
func stillWaited(requests []*request) []*request {
	alive := make([]*request, 0, len(requests))
	for _, r := range requests {
		if err := r.ctx.Err(); err != nil {
			r.finish(nil, err)
		} else {
			alive = append(alive, r)
		}
	}
	return alive
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
	if l.moved != nil && elsewhere(err) {
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

// answerOrRefusal tells the answer of one of many calls from its error, which is a text, see
// together.lua.
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
