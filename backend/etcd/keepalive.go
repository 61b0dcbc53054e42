package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// maxIdle is how many streams a Locker keeps for later renewals.
const maxIdle = 8

// keepAlive has leases begin anew, and returns which of them still exist. This writes nothing to
// the log of the servers.
func (l *Locker) keepAlive(ctx context.Context, ids []int64) ([]bool, error) {
	select {
	case s := <-l.idle:
		alive, err := l.keepAliveBy(ctx, s, ids)
		if err == nil {
			return alive, nil
		}
		// The connection, the leader or the token may have gone, also for the other streams.
		l.endIdle()
		if ctx.Err() != nil {
			return nil, err
		}
	default:
	}
	return withLeader(ctx, func() ([]bool, error) { return l.keepAliveBy(ctx, l.newStream(), ids) })
}

// endIdle ends the streams that are kept.
func (l *Locker) endIdle() {
	for {
		select {
		case s := <-l.idle:
			s.end()
		default:
			return
		}
	}
}

// keepAliveBy is keepAlive by a stream. It ends the stream, or keeps it if all have an answer.
func (l *Locker) keepAliveBy(ctx context.Context, s *stream, ids []int64) ([]bool, error) {
	stop := context.AfterFunc(ctx, s.end)
	alive, err := s.keepAlive(ids)
	if stop() && err == nil {
		select {
		case l.idle <- s:
			return alive, nil
		default:
		}
	}
	s.end()
	return alive, err
}

// A stream is a stream of keep-alives. For each new one, a client with a password authenticates.
// That costs a server tens of milliseconds and a write. So the streams of such a client are kept.
type stream struct {
	begin func() (pb.Lease_LeaseKeepAliveClient, error)
	end   context.CancelFunc
	begun pb.Lease_LeaseKeepAliveClient
}

func (l *Locker) newStream() *stream {
	ctx, end := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	return &stream{begin: func() (pb.Lease_LeaseKeepAliveClient, error) { return l.leases.LeaseKeepAlive(ctx) }, end: end}
}

// keepAlive relies on the server to answer in order.
func (s *stream) keepAlive(ids []int64) (alive []bool, err error) {
	if s.begun == nil {
		if s.begun, err = s.begin(); err != nil {
			return nil, err
		}
	}
	for _, id := range ids {
		if err := s.begun.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
			_, err = s.begun.Recv() // why the stream has ended
			return nil, err
		}
	}
	for _, id := range ids {
		answer, err := s.begun.Recv()
		if err != nil {
			return nil, err
		}
		if answer.ID != id {
			return nil, fmt.Errorf("an answer for the lease %x came instead of one for %x: %w", answer.ID, id, errProtocol)
		}
		alive = append(alive, answer.TTL > 0)
	}
	return alive, nil
}
