package redisstore

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A queue makes the claims of one Locker respect the queues of waiters, see queue.lua. It is safe
// for concurrent use.
type queue struct {
	subscriber *pubsub.Subscriber
	locker     string // identifies the Locker among all others
	publish    string // how to publish, see publish.lua
	// asked has the claims for which a caller is still there, although it has not subscribed: its
	// request is under way, or was answered a moment ago.
	asked   recent
	dequeue func(key, id string) // removes a claim from the queue, in the background
}

// acquire makes the call one for a claim that uses the queue.
func (q *queue) acquire(c driver.Claim, call *Call) {
	joins := "0"
	if c.Queue == driver.Queued {
		joins = "1"
	}
	call.FurtherKeys = append(call.FurtherKeys, QueueKeys(call.Slot, c.Key)...)
	call.FurtherArgs = append(call.FurtherArgs, joins, q.locker, q.publish, Milliseconds(c.TTL))
}

// release is to a release what acquire is to an acquire. leave is that of residue, or "Q" to
// release nothing: the call then only removes the claim from the queue.
func (q *queue) release(call *Call, leave string) {
	call.FurtherKeys = append(call.FurtherKeys, QueueKeys(call.Slot, call.Key)...)
	call.FurtherArgs = append(call.FurtherArgs, q.publish, leave)
}

func (q *queue) subscribe(fence, key, id string, notify func(in time.Duration)) (stop func()) {
	channel := QueueKeys(fence, key)[0] + ":" + q.locker
	receive := func(wait string) {
		if wait == "" { // the subscription has begun
			notify(0)
		} else if ms, err := strconv.Atoi(wait); err == nil {
			notify(time.Duration(ms) * time.Millisecond)
		}
	}
	return q.subscriber.SubscribeNamed(channel, id, receive, func(id string) {
		if !q.asked.has(id) {
			q.asked.add(id, driver.NotifyGrace) // one request is enough
			q.dequeue(key, id)
		}
	})
}

// QueueKeys names the Redis keys of a key's queue: queue and waiters. They are in the slot of its
// fence counter.
func QueueKeys(fence, key string) []string {
	prefix := strings.TrimSuffix(fence, "fence")
	return []string{prefix + "queue:" + key, prefix + "waiters:" + key}
}
