package etcd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/internal/holders"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An item is a value in a directory: a line of JSON, and after it the record of a done marker.
type item struct {
	ID         string        `json:"id"`
	MaxHolders int           `json:"max_holders"`
	Seat       int           `json:"seat,omitempty"`
	Label      []byte        `json:"label,omitempty"`
	TTL        time.Duration `json:"ttl"` // as it was asked for
	Kept       bool          `json:"kept,omitempty"`
	// Clock makes the fence of the revision at which the key in etcd was created, unless Fence was
	// given, or is in use instead.
	Clock clock  `json:"clock,omitzero"`
	Fence uint64 `json:"fence,omitempty"`
}

// value returns the value with a record.
func (i *item) value(record []byte) string {
	line, _ := json.Marshal(i) // cannot fail
	return string(line) + "\n" + string(record)
}

// A child is a key in a directory, with its item.
type child struct {
	item
	key               string
	lease             int64
	created, modified int64 // revisions
	record            []byte
}

// fence returns the fence in use.
func (c *child) fence() uint64 {
	if c.Fence != 0 {
		return c.Fence
	}
	return c.Clock.at(c.created)
}

// unchanged compares the key with what was read.
func (c *child) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(c.key), "=", c.modified)
}

func parseChild(kv *mvccpb.KeyValue) (*child, error) {
	line, record, _ := bytes.Cut(kv.Value, []byte("\n"))
	c := &child{key: string(kv.Key), lease: kv.Lease, created: kv.CreateRevision, modified: kv.ModRevision, record: record}
	if err := json.Unmarshal(line, &c.item); err != nil {
		return nil, fmt.Errorf("the key %q: %w: %w", kv.Key, errProtocol, err)
	}
	return c, nil
}

// A view is a directory as it was read, and the clock.
type view struct {
	directory
	revision       int64
	clock          clockKey
	claims         []*child
	marker, wanted *child
}

// reads returns the operations whose answers make a view.
func (l *Locker) reads(d directory) []clientv3.Op {
	return []clientv3.Op{clientv3.OpGet(string(d), clientv3.WithRange(d.end())), clientv3.OpGet(l.prefix + clockName)}
}

// read reads a directory.
func (l *Locker) read(ctx context.Context, d directory) (*view, error) {
	answer, err := l.commit(ctx, l.client.Txn(ctx).Then(l.reads(d)...))
	if err != nil {
		return nil, err
	}
	return l.view(d, (*pb.TxnResponse)(answer))
}

// view returns the view that is the answer of a transaction to reads.
func (l *Locker) view(d directory, answer *pb.TxnResponse) (*view, error) {
	if len(answer.Responses) != 2 {
		return nil, fmt.Errorf("%d answers came for 2 reads: %w", len(answer.Responses), errProtocol)
	}
	v := &view{directory: d, revision: answer.Header.Revision}
	for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
		c, err := parseChild(kv)
		if err != nil {
			return nil, err
		}
		switch strings.TrimPrefix(c.key, string(d)) {
		case doneName:
			v.marker = c
		case wantedName:
			v.wanted = c
		default:
			v.claims = append(v.claims, c)
		}
	}
	var value []byte
	for _, kv := range answer.Responses[1].GetResponseRange().Kvs {
		value = kv.Value
	}
	var err error
	if v.clock, err = parseClock(l.prefix+clockName, value); err != nil {
		return nil, fmt.Errorf("the key %q: %w: %w", v.clock.key, errProtocol, err)
	}
	return v, nil
}

// unchanged compares the directory with what was read: nothing was added or changed since. What was
// deleted does not matter, as a claim then has fewer holders beside it.
func (v *view) unchanged() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(string(v.directory)).WithRange(v.end()), "<", v.revision+1)
}

// claim returns the claim with that ID, or nil.
func (v *view) claim(id string) *child {
	for _, c := range v.claims {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// maxAsked is of how many leases one call asks how much time is left. Those of others count as if
// they had begun now.
const maxAsked = 16

// key returns what package holders decides about, with the time that is left, if it is asked for.
func (v *view) key(ctx context.Context, l *Locker, now time.Time, ask bool) (*holders.Key, error) {
	all := v.claims
	if v.marker != nil {
		all = []*child{v.marker}
	}
	if v.wanted != nil {
		all = append([]*child{v.wanted}, all...)
	}
	ends := make([]time.Time, len(all))
	failed := make([]error, len(all))
	var asking sync.WaitGroup
	for i, c := range all {
		ends[i] = now.Add(c.TTL)
		if ask && i < maxAsked {
			asking.Go(func() {
				left, err := l.left(ctx, c)
				ends[i], failed[i] = now.Add(left), err
			})
		}
	}
	asking.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	k := &holders.Key{}
	for i, c := range all {
		if c == v.wanted {
			k.Wanted = holders.Wanted{ID: c.ID, MaxHolders: c.MaxHolders, Until: ends[i]}
			continue
		}
		k.Holders = append(k.Holders, holders.Holder{
			ID: c.ID, MaxHolders: c.MaxHolders, Fence: c.fence(), Seat: c.Seat, Label: string(c.Label),
			Released: c.Kept || c == v.marker, Ends: ends[i],
		})
	}
	if v.marker != nil {
		k.Done, k.Record = true, v.marker.record
	}
	return k, nil
}

// write runs a transaction on what was read. If something has changed since, it returns a new view.
// Otherwise it returns nil, and the revision of the transaction.
func (v *view) write(
	ctx context.Context, l *Locker, compare []clientv3.Cmp, then []clientv3.Op,
) (revision int64, again *view, err error) {
	answer, err := l.commit(ctx, l.client.Txn(ctx).If(compare...).Then(then...).Else(l.reads(v.directory)...))
	if err != nil {
		return 0, nil, err
	}
	if answer.Succeeded {
		return answer.Header.Revision, nil, nil
	}
	again, err = l.view(v.directory, (*pb.TxnResponse)(answer))
	return 0, again, err
}

// races is how often a call begins again. Each time, another call has made progress.
const races = 20

// errRaces is the end of a call that others have overtaken too often.
var errRaces = errors.New("other calls have changed the key meanwhile")

// repeat calls f with a view of the directory. f returns a new view if it is to be called again.
func repeat[T any](
	ctx context.Context, l *Locker, key string, f func(*view) (T, *view, error),
) (t T, err error) {
	v, err := l.read(ctx, l.directory(key))
	for range races {
		if err != nil {
			return t, err
		}
		if t, v, err = f(v); v == nil {
			return t, err
		}
	}
	if err == nil {
		err = errRaces
	}
	return t, err
}

// operate is repeat for a call of an Inspector.
func operate[T any](
	ctx context.Context, l *Locker, key string, f func(ctx context.Context, v *view) (T, *view, error),
) (T, error) {
	return call(ctx, l, driver.OpInspect, key, func(ctx context.Context) (T, error) {
		return repeat(ctx, l, key, func(v *view) (T, *view, error) { return f(ctx, v) })
	})
}
