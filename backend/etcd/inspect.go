package etcd

import (
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// Show implements driver.Inspector. The servers do not tell their clocks, so KeyInfo.Time is that
// of this process.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	return operate(ctx, l, key, func(ctx context.Context, v *view) (driver.KeyInfo, *view, error) {
		now := time.Now()
		k, err := v.key(ctx, l, now, true)
		if err != nil {
			return driver.KeyInfo{}, nil, err
		}
		return k.Show(now), nil, nil
	})
}

// Marked implements driver.Inspector.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	return call(ctx, l, driver.OpInspect, keys[0], func(ctx context.Context) (marked []bool, err error) {
		var reads []clientv3.Op
		for _, key := range keys {
			reads = append(reads, clientv3.OpGet(l.directory(key).of(doneName), clientv3.WithCountOnly()))
		}
		answers, err := l.readAll(ctx, reads)
		for _, a := range answers {
			marked = append(marked, a.Count > 0)
		}
		return marked, err
	})
}

// readAll returns the answers to reads, by as few transactions as possible.
func (l *Locker) readAll(ctx context.Context, reads []clientv3.Op) (answers []*pb.RangeResponse, err error) {
	for chunk := range slices.Chunk(reads, maxOps) {
		answer, err := l.commit(ctx, l.client.Txn(ctx).Then(chunk...))
		if err != nil {
			return nil, err
		}
		for _, r := range answer.Responses {
			answers = append(answers, r.GetResponseRange())
		}
	}
	return answers, nil
}

// Keys implements driver.Inspector. The cursor is the last key of the page.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	n = max(n, 1)
	all := l.prefix + holdersName
	from, end := all+prefix, clientv3.GetPrefixRangeEnd(all+prefix)
	if cursor >= prefix && cursor != "" {
		from = afterNUL(all + cursor)
	}
	keys, err = call(ctx, l, driver.OpInspect, prefix, func(ctx context.Context) (keys []string, err error) {
		for len(keys) < n && from < end {
			answer, err := l.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(int64(n)))
			if err != nil {
				return nil, err
			}
			for _, kv := range answer.Kvs {
				key, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), all), "\x00")
				if len(keys) < n && (len(keys) == 0 || keys[len(keys)-1] != key) {
					keys = append(keys, key)
				}
			}
			if !answer.More {
				break
			}
			from = afterNUL(all + keys[len(keys)-1])
		}
		return keys, nil
	})
	if len(keys) == n {
		next = keys[n-1]
	}
	return keys, next, err
}

// Break implements driver.Inspector. A claim that is broken has another key in etcd, and a lease of
// its own, which the holder does not renew.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	return operate(ctx, l, key, func(ctx context.Context, v *view) (bool, *view, error) {
		own := v.claim(id)
		switch {
		case v.marker != nil:
			return false, nil, nil
		case b.Now && own != nil:
			again, err := l.drop(ctx, v, own)
			return err == nil && again == nil, again, err
		case own == nil || own.Kept:
			return !b.Now && v.claim(b.ID) != nil, nil, nil
		}
		left, err := l.left(ctx, own)
		if err != nil {
			return false, nil, err
		}
		broken := own.item
		broken.ID, broken.Label, broken.Kept, broken.TTL, broken.Fence = b.ID, []byte(b.Label), true, left, own.fence()
		lease := leaseID(v.of(b.ID), "kept", left)
		if err := l.ensure(ctx, lease, left); err != nil {
			return false, nil, err
		}
		_, again, err := v.write(ctx, l, []clientv3.Cmp{own.unchanged()}, []clientv3.Op{
			clientv3.OpDelete(own.key), clientv3.OpPut(v.of(b.ID), broken.value(nil), clientv3.WithLease(clientv3.LeaseID(lease))),
		})
		if err != nil || again != nil {
			return false, again, err
		}
		_, err = l.revoke(ctx, own.lease) // or a release of the claim would return true
		return err == nil, nil, err
	})
}

// Forget implements driver.Inspector.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	return operate(ctx, l, key, func(ctx context.Context, v *view) (bool, *view, error) {
		if v.marker == nil {
			return false, nil, nil
		}
		again, err := l.drop(ctx, v, v.marker)
		return err == nil && again == nil, again, err
	})
}
