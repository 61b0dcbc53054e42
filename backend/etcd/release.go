package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Release implements driver.Locker. The end of a lease of etcd deletes its key, so a plain release
// is one write. After it, a claim that is still on its way is refused: it has no lease.
func (l *Locker) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return call(ctx, l, driver.OpRelease, c.Key, func(ctx context.Context) (bool, error) {
		id := leaseID(l.directory(c.Key).of(c.ID), "", c.TTL)
		if after.Keep <= 0 && !c.Repeated {
			if revoked, err := l.revoke(ctx, id); err != nil || revoked {
				return revoked, err
			}
		}
		released, err := repeat(ctx, l, c.Key, func(v *view) (bool, *view, error) { return l.release(ctx, v, c, after) })
		if c.Repeated && err == nil {
			_, err = l.revoke(ctx, id)
		}
		return released && err == nil, err
	})
}

// release decides a release by a view.
func (l *Locker) release(ctx context.Context, v *view, c driver.Claim, after driver.After) (bool, *view, error) {
	own := v.claim(c.ID)
	switch {
	case v.wanted != nil && v.wanted.ID == c.ID:
		again, err := l.drop(ctx, v, v.wanted)
		return false, again, err
	case v.marker != nil:
		return v.marker.ID == c.ID, nil, nil
	case own == nil:
		return false, nil, nil
	case own.Kept: // this release is repeated
		return true, nil, nil
	case after.Keep <= 0:
		again, err := l.drop(ctx, v, own)
		return err == nil && again == nil, again, err
	}
	kept, key, use := own.item, own.key, "kept"
	kept.TTL, kept.Kept = after.Keep, true
	var then []clientv3.Op
	var record []byte
	if after.Done && own.MaxHolders == 1 {
		kept.Label, record, key, use = []byte(c.Label), after.Record, v.of(doneName), c.ID
		then = append(then, clientv3.OpDelete(own.key))
		if v.wanted != nil { // a claim that waits learns that the work is done
			then = append(then, clientv3.OpDelete(v.wanted.key))
		}
	}
	id := leaseID(key, use, after.Keep)
	if err := l.ensure(ctx, id, after.Keep); err != nil {
		return false, nil, err
	}
	then = append(then, clientv3.OpPut(key, kept.value(record), clientv3.WithLease(clientv3.LeaseID(id))))
	_, again, err := v.write(ctx, l, []clientv3.Cmp{own.unchanged()}, then)
	if is(err, rpctypes.ErrLeaseNotFound) {
		again, err = l.read(ctx, v.directory)
	}
	if err != nil || again != nil {
		return false, again, err
	}
	_, _ = l.revoke(ctx, own.lease) // otherwise it ends by itself, and has no key
	return true, nil, nil
}
