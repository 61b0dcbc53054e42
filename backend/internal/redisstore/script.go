package redisstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard"
)

// A Script is a Lua script that is known to the server by its hash.
type Script struct {
	source, sha string
}

// NewScript returns the script of that source.
func NewScript(source string) *Script {
	return &Script{source: source, sha: redis.NewScript(source).Hash()}
}

// A Call is one run of a script for the key of a claim.
type Call struct {
	Op     guard.Op
	Key    string // the claim's, for errors
	Script *Script
	Keys   []string
	Args   []any
	Acks   Acks // what else has to be true before the call has succeeded
}

// evalsha and eval return the arguments of the commands.
func (c Call) evalsha() []any { return c.command("evalsha", c.Script.sha) }
func (c Call) eval() []any    { return c.command("eval", c.Script.source) }

func (c Call) command(name, script string) []any {
	args := make([]any, 0, 3+len(c.Keys)+len(c.Args))
	args = append(args, name, script, len(c.Keys))
	for _, k := range c.Keys {
		args = append(args, k)
	}
	return append(args, c.Args...)
}

// Int runs a script that answers an integer.
func (s *Store) Int(ctx context.Context, c Call) (int64, error) {
	cmd := redis.NewIntCmd(ctx, c.evalsha()...)
	err := s.send(ctx, c, cmd)
	if isNoScript(err) {
		cmd = redis.NewIntCmd(ctx, c.eval()...)
		err = s.send(ctx, c, cmd)
	}
	if err != nil {
		return 0, s.error(c, err)
	}
	return cmd.Val(), nil
}

// Any runs a script that answers an integer or an array. If all that is wrong is that too few replicas
// have acknowledged it, the answer comes with the error.
func (s *Store) Any(ctx context.Context, c Call) (any, error) {
	cmd := redis.NewCmd(ctx, c.evalsha()...)
	err := s.send(ctx, c, cmd)
	if isNoScript(err) {
		cmd = redis.NewCmd(ctx, c.eval()...)
		err = s.send(ctx, c, cmd)
	}
	var short shortOfAcks
	switch {
	case errors.As(err, &short):
		return cmd.Val(), s.error(c, err)
	case err != nil:
		return nil, s.error(c, err)
	}
	return cmd.Val(), nil
}

// send sends cmd, which is c's, once.
func (s *Store) send(ctx context.Context, c Call, cmd redis.Cmder) error {
	if c.Acks.Replicas > 0 {
		return bounded(ctx, func() error { return s.sendAcked(ctx, c, cmd) })
	}
	return bounded(ctx, func() error { return s.client.Process(ctx, noRetry{cmd}) })
}

// noRetry keeps go-redis from sending a command again after its reply was lost: the second answer
// would be taken for the first one's ("busy" for a key that is ours, "not held" for a release that
// was done). The engine repeats what may be repeated.
type noRetry struct{ redis.Cmder }

func (noRetry) NoRetry() bool { return true }

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
