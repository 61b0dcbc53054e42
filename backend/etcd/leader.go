package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// leaderTries is how often a request is sent while servers answer that they have no leader, and
	// leaderWait is the time between two tries. The client does as much for other requests.
	leaderTries = 100
	leaderWait  = 25 * time.Millisecond
)

// commit runs a transaction. The client sends one only once, as its outcome may be unknown.
func (l *Locker) commit(ctx context.Context, txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	before := l.history.now()
	answer, err := withLeader(ctx, txn.Commit)
	if err == nil {
		l.history.note(before, answer.Header.Revision)
	}
	return answer, err
}

// withLeader calls f until the server that it reaches has a leader: one that has none has done
// nothing, and the client goes on to the next server. See clientv3.WithRequireLeader.
func withLeader[T any](ctx context.Context, f func() (T, error)) (t T, err error) {
	for range leaderTries {
		if t, err = f(); !is(err, rpctypes.ErrNoLeader) {
			return t, err
		}
		select {
		case <-time.After(leaderWait):
		case <-ctx.Done():
			return t, err
		}
	}
	return t, err
}
