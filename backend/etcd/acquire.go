package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// TryAcquire implements driver.Locker. It reads first, so that a busy key costs no write.
func (l *Locker) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	return call(ctx, l, driver.OpAcquire, c.Key, func(ctx context.Context) (driver.Answer, error) {
		a := acquisition{locker: l, claim: c}
		answer, err := repeat(ctx, l, c.Key, func(v *view) (driver.Answer, *view, error) { return a.try(ctx, v) })
		if errors.Is(err, errRaces) {
			answer, err = driver.Answer{State: driver.Busy, Reason: driver.Undecided, Left: time.Millisecond}, nil
		}
		if a.leased && err == nil && answer.State != driver.Granted {
			// Otherwise the lease ends by itself.
			_, _ = l.revoke(ctx, leaseID(l.directory(c.Key).of(c.ID), "", c.TTL))
		}
		return answer, err
	})
}

// An acquisition is a call of TryAcquire.
type acquisition struct {
	locker *Locker
	claim  driver.Claim
	leased bool // the claim has a lease of etcd, but no key
}

// try decides the claim by a view.
func (a *acquisition) try(ctx context.Context, v *view) (driver.Answer, *view, error) {
	l, c, now := a.locker, a.claim, time.Now()
	own := v.claim(c.ID)
	if v.marker == nil && own != nil && !own.Kept {
		held, again, err := l.extend(ctx, v, own, c)
		if !held {
			return driver.Answer{}, again, err
		}
		return driver.Answer{State: driver.Granted, Fence: max(own.fence(), c.Fence), Seat: own.Seat, Held: true}, nil, nil
	}
	k, err := v.key(ctx, l, now, false)
	if err != nil {
		return driver.Answer{}, nil, err
	}
	if v.marker == nil && own == nil && k.Admits(c) {
		return a.grant(ctx, v, k, now)
	}
	if k, err = v.key(ctx, l, now, true); err != nil {
		return driver.Answer{}, nil, err
	}
	if v.marker != nil {
		marker := &k.Holders[0]
		return driver.Answer{State: driver.Done, Left: marker.Ends.Sub(now), Record: k.Record, Label: marker.Label}, nil, nil
	}
	refused := k.Refuse(c, now)
	again, err := l.want(ctx, v, k, c)
	return refused, again, err
}

// grant grants the claim, unless something has changed since the view.
func (a *acquisition) grant(ctx context.Context, v *view, k *holders.Key, now time.Time) (driver.Answer, *view, error) {
	l, c := a.locker, a.claim
	key := v.of(c.ID)
	id := leaseID(key, "", c.TTL)
	if !a.leased {
		if err := l.ensure(ctx, id, c.TTL); err != nil {
			return driver.Answer{}, nil, err
		}
		a.leased = true
	}
	answer := driver.Answer{State: driver.Granted, Fence: c.Fence, Reserved: max(c.Fences.Reserve, 0)}
	end := uint64(0)
	if c.Fence == 0 {
		answer.Reserved = min(answer.Reserved, maxReserve)
	} else {
		end = c.Fence + uint64(answer.Reserved) //nolint:gosec // not negative
	}
	k.Add(c, &answer, now.Add(c.TTL)) // finds the seat
	next := v.clock.next(now, v.revision, end)
	own := child{item: item{
		ID: c.ID, MaxHolders: holders.MaxHolders(c), Seat: answer.Seat, Label: []byte(c.Label), TTL: c.TTL, Clock: next, Fence: c.Fence,
	}}
	then := append(v.clock.set(next), clientv3.OpPut(key, own.value(nil), clientv3.WithLease(clientv3.LeaseID(id))))
	if v.wanted != nil && v.wanted.ID == c.ID {
		then = append(then, clientv3.OpDelete(v.wanted.key))
	}
	revision, again, err := v.write(ctx, l, []clientv3.Cmp{v.clock.unchanged(), v.unchanged()}, then)
	if is(err, rpctypes.ErrLeaseNotFound) { // it has ended meanwhile
		a.leased = false
		again, err = l.read(ctx, v.directory)
	}
	if err != nil || again != nil {
		return driver.Answer{}, again, err
	}
	own.created = revision
	answer.Fence = own.fence()
	return answer, nil, nil
}

// want writes which claim is wanted, as the decision in k has left it.
func (l *Locker) want(ctx context.Context, v *view, k *holders.Key, c driver.Claim) (again *view, err error) {
	wanted := v.wanted != nil && v.wanted.ID == c.ID
	switch {
	case k.Wanted.ID == c.ID:
		w := item{ID: c.ID, MaxHolders: holders.MaxHolders(c), TTL: driver.WantedFor(c.TTL)}
		key := v.of(wantedName)
		id := leaseID(key, c.ID, w.TTL)
		if wanted && v.wanted.lease == id {
			alive, err := l.keepAlive(ctx, []int64{id})
			if err != nil || alive[0] {
				return nil, err
			}
			return l.read(ctx, v.directory)
		}
		if err := l.ensure(ctx, id, w.TTL); err != nil {
			return nil, err
		}
		put := clientv3.OpPut(key, w.value(nil), clientv3.WithLease(clientv3.LeaseID(id)))
		_, again, err = v.write(ctx, l, []clientv3.Cmp{v.unchanged()}, []clientv3.Op{put})
		if is(err, rpctypes.ErrLeaseNotFound) {
			return l.read(ctx, v.directory)
		}
		return again, err
	case wanted:
		_, err = l.drop(ctx, v, v.wanted)
	}
	return nil, err
}

// drop deletes a key, unless it has changed, and ends its lease.
func (l *Locker) drop(ctx context.Context, v *view, c *child) (again *view, err error) {
	_, again, err = v.write(ctx, l, []clientv3.Cmp{c.unchanged()}, []clientv3.Op{clientv3.OpDelete(c.key)})
	if err == nil && again == nil {
		_, _ = l.revoke(ctx, c.lease) // otherwise it ends by itself, and has no key
	}
	return again, err
}
