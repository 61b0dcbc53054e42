package etcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// maxOps is how many operations a transaction of etcd may have by default.
const maxOps = 128

// Renew implements driver.Locker.
func (l *Locker) Renew(ctx context.Context, c driver.Claim) (held bool, err error) {
	l.renew(ctx, []driver.Claim{c}, func(_ int, a driver.Answer, e error) { held, err = a.Held, e })
	return held, err
}

// Start implements driver.Async. Renewals share streams and transactions.
func (l *Locker) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	if op != driver.OpRenew {
		driver.Each{Locker: l}.Start(ctx, op, claims, after, done)
		return
	}
	from := 0
	for chunk := range slices.Chunk(claims, maxOps) {
		first := from
		from += len(chunk)
		go l.renew(ctx, chunk, func(i int, a driver.Answer, err error) { done(first+i, a, err) })
	}
}

// renew renews claims, of which there are at most maxOps, and returns when all have an answer. It
// first has their leases begin anew, and then looks whether the claims are there: an operator may
// have broken one, and a server before 3.5.23 may have answered for a lease that has ended. Claims
// that are to be changed are so one by one.
func (l *Locker) renew(ctx context.Context, claims []driver.Claim, done func(i int, a driver.Answer, err error)) {
	same, err := call(ctx, l, driver.OpRenew, claims[0].Key, func(ctx context.Context) ([]renewed, error) {
		return l.keepSame(ctx, claims)
	})
	for i, c := range claims {
		switch {
		case err != nil:
			done(i, driver.Answer{}, withKey(err, c.Key))
		case same[i] == changed:
			held, err := call(ctx, l, driver.OpRenew, c.Key, func(ctx context.Context) (bool, error) {
				return repeat(ctx, l, c.Key, func(v *view) (bool, *view, error) {
					own := v.claim(c.ID)
					if v.marker != nil || own == nil || own.Kept {
						return false, nil, nil
					}
					return l.extend(ctx, v, own, c)
				})
			})
			done(i, driver.Answer{Held: held}, err)
		default:
			done(i, driver.Answer{Held: same[i] == held}, nil)
		}
	}
}

// renewed is what has become of a claim that was renewed.
type renewed uint8

const (
	lost renewed = iota
	held
	changed // it needs another lease, or another value
)

// keepSame renews claims that keep their lease and their fence.
func (l *Locker) keepSame(ctx context.Context, claims []driver.Claim) ([]renewed, error) {
	ids, reads := make([]int64, len(claims)), make([]clientv3.Op, len(claims))
	for i, c := range claims {
		key := l.directory(c.Key).of(c.ID)
		ids[i], reads[i] = leaseID(key, "", c.TTL), clientv3.OpGet(key)
	}
	alive, err := l.keepAlive(ctx, ids)
	if err != nil {
		return nil, err
	}
	answer, err := l.commit(ctx, l.client.Txn(ctx).Then(reads...))
	if err != nil {
		return nil, err
	}
	all := make([]renewed, len(claims))
	for i, response := range (*pb.TxnResponse)(answer).Responses {
		for _, kv := range response.GetResponseRange().Kvs {
			own, err := parseChild(kv)
			switch {
			case err != nil:
				all[i] = changed // by itself, it fails alone
			case own.Kept:
			case own.lease == ids[i] && claims[i].Fence <= own.fence():
				if alive[i] {
					all[i] = held
				}
			default:
				all[i] = changed
			}
		}
	}
	return all, nil
}

// extend has a claim last for c.TTL from now, and raises its fence to c.Fence. If something has
// changed since the view, it returns a new one.
func (l *Locker) extend(ctx context.Context, v *view, own *child, c driver.Claim) (held bool, again *view, err error) {
	id := leaseID(own.key, "", c.TTL)
	raise := c.Fence > own.fence()
	if own.lease == id && !raise {
		alive, err := l.keepAlive(ctx, []int64{id})
		if err != nil || alive[0] {
			return err == nil, nil, err
		}
		again, err = l.read(ctx, v.directory)
		return false, again, err
	}
	if err := l.ensure(ctx, id, c.TTL); err != nil {
		return false, nil, err
	}
	next, compare, then := own.item, []clientv3.Cmp{own.unchanged()}, []clientv3.Op(nil)
	next.TTL = c.TTL
	if raise {
		next.Fence = c.Fence
		end := c.Fence + uint64(max(c.Fences.Reserve, 0)) //nolint:gosec // not negative
		// Later grants have later revisions.
		if end >= v.clock.at(v.revision+1) {
			then = v.clock.set(v.clock.next(time.Now(), v.revision, end))
			compare = append(compare, v.clock.unchanged())
		}
	}
	then = append(then, clientv3.OpPut(own.key, next.value(nil), clientv3.WithLease(clientv3.LeaseID(id))))
	_, again, err = v.write(ctx, l, compare, then)
	if is(err, rpctypes.ErrLeaseNotFound) {
		again, err = l.read(ctx, v.directory)
	}
	if err != nil || again != nil {
		return false, again, err
	}
	if own.lease != id {
		// A release ends the lease of the TTL that it is given, so the former one must not stay.
		_, err = l.revoke(ctx, own.lease)
	}
	return err == nil, nil, err
}
