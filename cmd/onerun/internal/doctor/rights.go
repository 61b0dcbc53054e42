package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// scratch begins the keys that are tried, and is the name of the log.
const scratch = "onerun-doctor"

// A feature is something that a user may lack rights for. docs/acl.md has a line for each.
type feature struct {
	name  string
	needs func(c Config) bool // the backend in use does not work without it
	try   try
}

func never(Config) bool           { return false }
func usesSingle(c Config) bool    { return c.Backend != connect.Reentrant }
func usesReentrant(c Config) bool { return c.Backend == connect.Reentrant }

// A try is the try function of a feature.
type try = func(ctx context.Context, client redis.UniversalClient, c Config, key string) error

// onUsed returns a try on the backend that is used. The nodes of a RedLock are of single.
func onUsed(f func(ctx context.Context, l driver.Locker, key string) error) try {
	return func(ctx context.Context, client redis.UniversalClient, c Config, key string) error {
		if usesReentrant(c) {
			return f(ctx, reentrant.New(client), key)
		}
		return f(ctx, single.New(client, c.Plain...), key)
	}
}

var features = []feature{
	{"single", usesSingle, func(ctx context.Context, client redis.UniversalClient, c Config, key string) error {
		return tryLease(ctx, single.New(client, c.Plain...), key)
	}},
	{"reentrant", usesReentrant, func(ctx context.Context, client redis.UniversalClient, _ Config, key string) error {
		return tryLease(ctx, reentrant.New(client), key)
	}},
	{"notifications", never, tryNotifications},
	{"WithFair", never, onUsed(tryQueue)},
	{"WithShared", never, onUsed(trySharing)},
	{"cron", never, onUsed(tryLedger)},
	{"WithReplicas", never, tryWait},
}

// try tries each feature: what a backend may do by its ACL, its server's version and its settings
// shows only then. It tries on several keys, which are on several nodes of a Cluster.
func (s *Server) try(ctx context.Context, client redis.UniversalClient, c Config) {
	s.rights = map[string]error{}
	keys := 1
	if _, ok := client.(*redis.ClusterClient); ok {
		keys = 12
	}
	for _, f := range features {
		var err error
		for range keys {
			key := driver.JoinNamespace(c.Namespace, scratch+"-"+rand.Text())
			if err = f.try(ctx, client, c, key); err != nil {
				break
			}
		}
		s.rights[f.name] = err
		switch {
		case err == nil:
			s.add("try "+f.name, OK, "works")
		case f.needs(c):
			s.add("try "+f.name, Problem, "does not work: %s", reason(err))
		default:
			s.add("try "+f.name, Note, "does not work: %s", reason(err))
		}
	}
}

// reason returns the server's own words.
func reason(err error) string {
	var store *driver.StoreError
	if errors.As(err, &store) {
		err = store.Err
	}
	text := strings.TrimSpace(err.Error())
	if strings.Contains(text, "NOPERM") || strings.Contains(text, "can't run this command") || strings.Contains(text, "can't access") {
		text += " (docs/acl.md has the rights)"
	}
	return text
}

func claim(key string) driver.Claim {
	id := rand.Text()
	return driver.Claim{Key: key, ID: id, Owner: id, TTL: 5 * time.Second, Label: scratch}
}

// acquire makes a claim, which must be granted.
func acquire(ctx context.Context, l driver.Locker, c driver.Claim) error {
	grant, err := l.TryAcquire(ctx, c)
	if err == nil && grant.State != driver.Granted {
		err = fmt.Errorf("a claim is %v that should be granted; the user may lack rights (docs/acl.md has them)", grant.State)
	}
	return err
}

// release releases a claim, and leaves nothing.
func release(ctx context.Context, l driver.Locker, c driver.Claim) error {
	_, err := l.Release(ctx, c, driver.After{})
	return err
}

// tryLease acquires, renews and releases a lease, and leaves a marker for a moment.
func tryLease(ctx context.Context, l driver.Locker, key string) error {
	c := claim(key)
	if err := acquire(ctx, l, c); err != nil {
		return err
	}
	held, err := l.Renew(ctx, c)
	if err == nil && !held {
		err = errors.New("a lease was gone at once")
	}
	if err != nil {
		_ = release(ctx, l, c)
		return err
	}
	_, err = l.Release(ctx, c, driver.After{Keep: 100 * time.Millisecond, Done: true})
	return err
}

// tryQueue has a claim wait in the queue of a key.
func tryQueue(ctx context.Context, l driver.Locker, key string) error {
	holder, waiter := claim(key), claim(key)
	waiter.Queue = driver.Queued
	if err := acquire(ctx, l, holder); err != nil {
		return err
	}
	_, err := l.TryAcquire(ctx, waiter)
	return cmp.Or(err, release(ctx, l, waiter), release(ctx, l, holder))
}

// trySharing has two claims share a key.
func trySharing(ctx context.Context, l driver.Locker, key string) error {
	one, two := claim(key), claim(key)
	one.MaxHolders, two.MaxHolders = driver.Unlimited, driver.Unlimited
	return cmp.Or(acquire(ctx, l, one), acquire(ctx, l, two), release(ctx, l, one), release(ctx, l, two))
}

// tryLedger writes to a log and reads it. The keys of a log cannot be removed.
func tryLedger(ctx context.Context, locker driver.Locker, _ string) error {
	l := locker.(driver.Ledger)
	_, err := l.Raise(ctx, scratch, "counter", 1)
	if err == nil {
		err = l.Append(ctx, scratch, driver.Entry{At: 1, Record: []byte(scratch)}, 1)
	}
	if err == nil {
		_, err = driver.Entries(ctx, l, scratch, 1)
	}
	return err
}

// tryWait waits for a replica, for a millisecond.
func tryWait(ctx context.Context, client redis.UniversalClient, _ Config, _ string) error {
	return client.Do(ctx, "WAIT", 0, 1).Err()
}

// tryNotifications subscribes to a channel, and publishes there. On a Cluster, channels belong to
// slots.
func tryNotifications(ctx context.Context, client redis.UniversalClient, _ Config, key string) error {
	channel := "onerun:" + key
	_, sharded := client.(*redis.ClusterClient)
	var sub *redis.PubSub
	if sharded {
		sub = client.SSubscribe(ctx, channel)
	} else {
		sub = client.Subscribe(ctx, channel)
	}
	defer func() { _ = sub.Close() }()
	if _, err := sub.ReceiveTimeout(ctx, 2*time.Second); err != nil {
		return err
	}
	publish := client.Publish
	if sharded {
		publish = client.SPublish
	}
	if err := publish(ctx, channel, "0").Err(); err != nil {
		return err
	}
	_, err := sub.ReceiveTimeout(ctx, 2*time.Second)
	return err
}
