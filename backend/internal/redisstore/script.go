package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Script is a Lua script that is known to the server by its hash.
type Script struct {
	source, sha any // strings, which are arguments of commands
}

// NewScript returns the script of that source.
func NewScript(source string) *Script {
	return &Script{source: source, sha: redis.NewScript(source).Hash()}
}

// On returns the command that runs the script on the keys, one at least, and with the arguments.
func (s *Script) On(keys []string, args ...any) Command {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, evalsha, s.sha, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	return Command{script: s, key: keys[0], args: append(all, args...)}
}

var evalsha, eval any = "evalsha", "eval"

// A Command is a script with its keys and arguments.
type Command struct {
	script *Script
	key    string // the first, by which the node is found
	args   []any

	// Or an operation of a Program with its own, of which the record is the last.
	of     *operation
	texts  [mostTexts]string
	record []byte
	prefix string    // of the first text, or ""
	first  *longName // both of them, or nil
}

// Under returns the command with a prefix in front of its first key. The slot is in the prefix.
func (c Command) Under(prefix string) Command {
	c.prefix, c.key = prefix, prefix
	return c
}

// text returns the i-th text as an argument.
func (c *Command) text(i int) any {
	switch {
	case i > 0 || c.prefix == "":
		return c.texts[i]
	case c.first != nil:
		return c.first
	default:
		return c.prefix + c.texts[0]
	}
}

// evalsha and eval return the arguments of the commands that name the script by its hash, and by
// its source.
func (c *Command) evalsha() []any { return c.append(nil, evalsha) }
func (c *Command) eval() []any    { return c.append(nil, eval) }

// append appends the arguments of one of these.
func (c *Command) append(to []any, name any) []any {
	script := c.script.sha
	if name == eval {
		script = c.script.source
	}
	to = append(to, name, script)
	if c.of == nil {
		return append(to, c.args[2:]...)
	}
	return c.appendArgs(c.appendKeys(append(to, c.of.keys)))
}

// appendKeys and appendArgs append the keys and the arguments of an operation, but for those at
// the end that are empty.
func (c *Command) appendKeys(to []any) []any {
	for i := range c.of.keys {
		to = append(to, c.text(i))
	}
	return to
}

func (c *Command) appendArgs(to []any) []any {
	texts := c.of.keys + c.of.args
	if c.of.records {
		texts--
	}
	if len(c.record) == 0 {
		for texts > c.of.keys && c.texts[texts-1] == "" {
			texts--
		}
	}
	for i := c.of.keys; i < texts; i++ {
		to = append(to, c.text(i))
	}
	if len(c.record) > 0 {
		to = append(to, c.record)
	}
	return to
}

// A Call is one run of a script for the key of a claim.
type Call struct {
	Op  driver.Op
	Key string // the claim's, for errors
	Command
	TTL  time.Duration // of the lease that is asked for
	Acks Acks          // what else has to be true before the call has succeeded
}

// Int runs a script that answers an integer.
func (s *Store) Int(ctx context.Context, c Call) (int64, error) {
	answer, err := s.run(ctx, &c)
	return s.toInt(&c, answer, err)
}

// StartInt is Int that does not wait: done is called once with the answer, or an error when none
// can come any more, which may be some time after ctx has ended. It must not block.
func (s *Store) StartInt(ctx context.Context, c Call, done func(int64, error)) {
	r := &request{done: func(answer any, err error) { done(s.toInt(&c, answer, err)) }}
	r.set(ctx, &c)
	s.start(r)
}

// provesLost reports whether err, from a renewal or a release, says that the claim does not hold
// the lease: the first thing that their scripts read is the lease's key, and it holds something
// else.
func (c *Call) provesLost(err error) bool {
	return err != nil && (c.Op == driver.OpRenew || c.Op == driver.OpRelease) && kindOf(err) == driver.KindWrongType
}

func (s *Store) toInt(c *Call, answer any, err error) (int64, error) {
	n, ok := answer.(int64)
	switch {
	case c.provesLost(err):
		return 0, nil
	case err != nil:
		return 0, s.error(c, err)
	case !ok:
		return 0, s.error(c, ErrAnswer)
	}
	return n, nil
}

// Grant runs a script that asks for a key. If the script grants it, the answer is the fence, which
// is negative if the claim or its owner held the key already. With a hint, or with fences
// reserved, it is {1, that, clock as a fence or 0 without a hint, fences reserved}. Else it is {0
// busy, ms left, label, holder}, for a claim that sees the line {..., how many stand before it, 1
// if one of them was called}, or {2 done, ms left, text, bytes of it before the record, label}.
func (s *Store) Grant(ctx context.Context, c Call) (driver.Grant, error) {
	if err := s.checkTTL(&c); err != nil {
		return driver.Grant{}, err
	}
	answer, err := s.run(ctx, &c)
	return s.toGrant(&c, answer, err)
}

// StartGrant is to Grant what StartInt is to Int.
func (s *Store) StartGrant(ctx context.Context, c Call, done func(driver.Grant, error)) {
	if err := s.checkTTL(&c); err != nil {
		done(driver.Grant{}, err)
		return
	}
	r := &request{done: func(answer any, err error) { done(s.toGrant(&c, answer, err)) }}
	r.set(ctx, &c)
	s.start(r)
}

func (s *Store) toGrant(c *Call, answer any, err error) (driver.Grant, error) {
	if err != nil && !isShortOfAcks(err) {
		return driver.Grant{}, s.error(c, err)
	}
	grant, ok := toGrant(answer)
	switch {
	case !ok:
		return driver.Grant{}, s.error(c, ErrAnswer)
	case err != nil && grant.State == driver.Granted:
		// where it was not granted, there is nothing to acknowledge
		return driver.Grant{}, s.error(c, err)
	}
	return grant, nil
}

// start sends a request: with others, but alone if a replica has to acknowledge it.
func (s *Store) start(r *request) {
	switch {
	case r.ctx.Err() != nil:
		r.finish(nil, r.ctx.Err())
	case r.call.Acks.Replicas > 0:
		go s.sendAcked(r)
	default:
		if lane := s.laneNow(r); lane != nil {
			lane.send(r)
		} else {
			go s.nodes.send(r)
		}
	}
}

// noRetry keeps go-redis from sending a command again after its reply was lost: the second answer
// would be taken for the first one's ("busy" for a key that is ours, "not held" for a release that
// was done). The engine repeats what may be repeated.
type noRetry struct{ redis.Cmder }

func (*noRetry) NoRetry() bool { return true }

func isNoScript(err error) bool {
	return err != nil && strings.Contains(err.Error(), "NOSCRIPT")
}

// bounded runs f and returns what it returns, or the error of ctx when that ends first: by default
// go-redis reads on when a context has ended, for as long as the client's own time-outs say. f is
// then left behind; it ends with those, and nobody looks at what it finds.
func bounded(ctx context.Context, f func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if ctx.Done() == nil {
		return f()
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrAnswer is the answer of a script that is not one of its answers.
var ErrAnswer = errors.New("the script's answer makes no sense")

// Milliseconds returns d as the argument of PX, rounded up.
func Milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
