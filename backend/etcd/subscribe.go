package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// watchAgain is after what time a watch that has ended begins again.
const watchAgain = 200 * time.Millisecond

// Subscribe implements driver.Subscriber, by a watch of the key. The end of a lease is an event as
// well.
func (l *Locker) Subscribe(key, _ string, notify func(in time.Duration)) (stop func()) {
	if l.wrong != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		for ctx.Err() == nil {
			l.watch(ctx, l.directory(key), notify)
			select {
			case <-ctx.Done():
			case <-time.After(watchAgain):
			}
		}
	}()
	return cancel
}

// watch notifies of what frees a key, until ctx or the watch has ended: a server without a leader
// ends it, and so does a compaction of what it has missed, or that the revision goes back.
func (l *Locker) watch(ctx context.Context, d directory, notify func(in time.Duration)) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	defer context.AfterFunc(l.history.until(), cancel)()
	for answer := range l.client.Watch(ctx, string(d), clientv3.WithRange(d.end()), clientv3.WithCreatedNotify()) {
		if ctx.Err() != nil || answer.Err() != nil {
			return
		}
		frees := answer.Created
		for _, e := range answer.Events {
			frees = frees || e.Type == mvccpb.DELETE || endsWork(e.Kv)
		}
		if frees {
			notify(0)
		}
	}
}

// endsWork reports whether a claim was released, and has left something.
func endsWork(kv *mvccpb.KeyValue) bool {
	c, err := parseChild(kv)
	return err != nil || c.Kept
}
