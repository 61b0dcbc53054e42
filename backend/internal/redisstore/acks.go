package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

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

// sendAcked sends a request and WAIT on one connection: WAIT answers for the connection on which
// it comes, and from another one it would say that all is well.
func (s *Store) sendAcked(r *request) {
	cmd := redis.NewCmd(r.ctx, r.call.evalsha()...)
	err := s.sendAndWait(r, cmd)
	if isNoScript(err) {
		cmd = redis.NewCmd(r.ctx, r.call.eval()...)
		err = s.sendAndWait(r, cmd)
	}
	r.finish(cmd.Val(), err)
}

func (s *Store) sendAndWait(r *request, cmd redis.Cmder) error {
	pipe, err := s.pipelineTo(r.ctx, r.call.key)
	if err != nil {
		return err
	}
	_ = pipe.Process(r.ctx, &noRetry{cmd})
	acked := redis.NewIntCmd(r.ctx, "wait", r.call.Acks.Replicas, Milliseconds(r.call.Acks.Within))
	_ = pipe.Process(r.ctx, acked)
	_, _ = pipe.Exec(r.ctx)
	if err := cmd.Err(); err != nil {
		return err
	}
	if err := acked.Err(); err != nil {
		return err
	}
	if got, want := acked.Val(), int64(r.call.Acks.Replicas); got < want {
		return shortOfAcks{got, want}
	}
	return nil
}

// pipelineTo returns a pipeline to the node that has the key, all of which goes over one
// connection.
func (s *Store) pipelineTo(ctx context.Context, key string) (redis.Pipeliner, error) {
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.client.Pipeline(), nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, err
	}
	return node.Pipeline(), nil
}
