package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// ensure makes a lease that lasts for ttl from now, or has it begin anew if it exists.
func (l *Locker) ensure(ctx context.Context, id int64, ttl time.Duration) error {
	for range races {
		_, err := l.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: seconds(ttl)})
		if !is(err, rpctypes.ErrLeaseExist) {
			return err
		}
		alive, err := l.keepAlive(ctx, []int64{id})
		if err != nil || alive[0] {
			return err
		}
	}
	return errRaces
}

// revoke ends a lease, and with it the key that has it. It returns false if there is none.
func (l *Locker) revoke(ctx context.Context, id int64) (revoked bool, err error) {
	_, err = l.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
	if is(err, rpctypes.ErrLeaseNotFound) {
		return false, nil
	}
	return err == nil, err
}

// left returns an upper bound of the time that a lease has left. It is at most the TTL that was
// asked for, and positive: an expired lease exists until the leader has ended it.
func (l *Locker) left(ctx context.Context, c *child) (time.Duration, error) {
	answer, err := l.leases.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: c.lease})
	if err != nil && !is(err, rpctypes.ErrLeaseNotFound) {
		return 0, err
	}
	whole := max(answer.GetTTL(), 0) // etcd rounds down
	return min(time.Duration(whole+1)*time.Second, max(c.TTL, time.Nanosecond)), nil
}

// is reports whether err is an error of etcd, as a client or a connection reports it.
func is(err, target error) bool {
	return err != nil && errors.Is(rpctypes.Error(err), rpctypes.Error(target))
}
