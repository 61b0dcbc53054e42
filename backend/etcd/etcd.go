// Package etcd is a driver.Locker on etcd, by its client v3.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:         []string{"etcd-1:2379", "etcd-2:2379", "etcd-3:2379"},
//		DialKeepAliveTime: 5 * time.Second,
//	})
//	g, err := guard.New(etcd.New(client))
//
// Each claim has a lease of etcd and a key below its Onerun key. A majority of the servers has
// stored each grant before it is answered, so no failover forgets one. Fences are made of
// revisions.
//
// A lease of etcd lasts for whole seconds, so a TTL and a minimum hold are rounded up. The servers
// raise a short one to 2 seconds, unless their election timeout is set. They end a lease up to a
// second late, and later after a new leader: each lease then begins anew.
//
// It keeps no queue, so guard.WithFair is refused. It keeps no owners: a second claim of an owner
// is refused as busy.
package etcd

import (
	"context"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Locker keeps leases in etcd. It is safe for concurrent use. It has no connections and no
// goroutines of its own, except for those of calls and subscriptions under way. If the client has a
// user name, up to eight streams for renewals stay, until the client is closed.
type Locker struct {
	client *clientv3.Client
	leases pb.LeaseClient
	idle   chan *stream // nil if streams are not kept
	prefix string
	addr   string // of all endpoints
	wrong  error

	history history
}

var (
	_ driver.Locker     = (*Locker)(nil)
	_ driver.Describer  = (*Locker)(nil)
	_ driver.Async      = (*Locker)(nil)
	_ driver.Subscriber = (*Locker)(nil)
	_ driver.Ledger     = (*Locker)(nil)
	_ driver.Inspector  = (*Locker)(nil)
	_ driver.Warner     = (*Locker)(nil)
)

const (
	// name is the name of the backend.
	name = "etcd"
	// defaultPrefix is that of WithPrefix.
	defaultPrefix = "onerun/"
	// maxPrefix is how long a prefix may be in bytes.
	maxPrefix = 200
)

// New returns a Locker on the client, which remains the caller's, to be closed after the Guard.
// guard.New refuses nil and options that cannot work. Set clientv3.Config.DialKeepAliveTime: a
// server that is gone can otherwise keep calls waiting for minutes.
func New(client *clientv3.Client, opts ...Option) *Locker {
	l := &Locker{client: client, prefix: defaultPrefix}
	if client == nil {
		l.refuse("client", "", "must not be nil")
	} else {
		l.leases, l.addr = clientv3.RetryLeaseClient(client), strings.Join(client.Endpoints(), ",")
		if client.Username != "" {
			l.idle = make(chan *stream, maxIdle)
		}
	}
	for _, opt := range opts {
		if opt == nil {
			l.refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(l)
	}
	return l
}

// An Option is a setting of New. guard.New refuses one that cannot work.
type Option func(*Locker)

// WithPrefix sets how all keys in etcd begin, such as "jobs/onerun/". It ends with a slash.
// Processes with different prefixes do not exclude each other. None may begin with another one.
// Defaults to "onerun/".
func WithPrefix(prefix string) Option {
	return func(l *Locker) {
		if len(prefix) > maxPrefix || !strings.HasSuffix(prefix, "/") || strings.Contains(prefix, "\x00") {
			l.refuse("WithPrefix", prefix, fmt.Sprintf("must end with a slash, have no NUL byte, and have at most %d bytes", maxPrefix))
			return
		}
		l.prefix = prefix
	}
}

// refuse notes that a setting cannot work. guard.New then refuses the Locker.
func (l *Locker) refuse(setting, value, reason string) {
	if l.wrong == nil {
		l.wrong = &driver.SettingError{Setting: setting, Value: value, Reason: reason}
	}
}

// Describe implements driver.Describer. Braces are allowed in keys. Only the ID distinguishes
// claims. Any number of them can share a key.
func (l *Locker) Describe() driver.Description {
	return driver.Description{
		Name: name, Addr: l.addr, Err: l.wrong, CheckKey: driver.CheckKeyBytes, Shares: func(int) error { return nil },
		ServerID: l.clusterID,
	}
}

// clusterID returns the identity of the cluster.
func (l *Locker) clusterID(ctx context.Context) (string, error) {
	return call(ctx, l, driver.OpInspect, "", func(ctx context.Context) (string, error) {
		members, err := l.client.Get(ctx, l.prefix+clockName, clientv3.WithCountOnly())
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%x", members.Header.ClusterId), nil
	})
}

// call calls f, unless ctx has ended, and makes a *driver.StoreError of its error.
func call[T any](
	ctx context.Context, l *Locker, op driver.Op, key string, f func(context.Context) (T, error),
) (T, error) {
	var none T
	err := l.wrong
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		var t T
		if t, err = f(clientv3.WithRequireLeader(ctx)); err == nil {
			return t, nil
		}
	}
	return none, l.storeError(ctx, op, key, err)
}
