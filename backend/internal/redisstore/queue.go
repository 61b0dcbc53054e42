package redisstore

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/pubsub"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Queue makes the claims of one Locker respect the queues of waiters, see queue.lua. It is safe
// for concurrent use.
type Queue struct {
	subscriber *pubsub.Subscriber
	locker     string // identifies the Locker among all others
	publish    string // how to publish
	asked      recentClaims
	dequeue    func(key, id string) // removes a claim from the queue, in the background
}

// NewQueue returns the Queue of a Locker. It receives notifications through the Subscriber.
func NewQueue(subscriber *pubsub.Subscriber) *Queue {
	q := &Queue{subscriber: subscriber, locker: rand.Text(), publish: "plain"}
	if subscriber.Via() != pubsub.ViaPlain {
		q.publish = "sharded"
	}
	return q
}

// Acquire returns the call for a claim that is not driver.Unqueued. fence is the name of the fence
// counter in the key's slot.
func (q *Queue) Acquire(c driver.Claim, call Call, fence string) Call {
	queued := "0"
	if c.Queue == driver.Queued {
		queued = "1"
	}
	call.Script = call.Script.queued
	call.FurtherKeys = append(call.FurtherKeys, QueueKeys(fence, c.Key)...)
	call.FurtherArgs = append(call.FurtherArgs, queued, q.locker, q.publish, Milliseconds(c.TTL))
	return call
}

// Release returns the call for a claim that is not driver.Unqueued. leave is that of Leave.
func (q *Queue) Release(c driver.Claim, call Call, fence, leave string) Call {
	call.Script = call.Script.queued
	call.FurtherKeys = append(call.FurtherKeys, QueueKeys(fence, c.Key)...)
	call.FurtherArgs = append(call.FurtherArgs, q.publish, leave)
	return call
}

// Notify returns the call that also notifies the first in the queue, if the key is free after it.
func (q *Queue) Notify(call Call, key string) Call {
	return q.Release(driver.Claim{Key: key}, call, call.Slot, "")
}

// Subscribe is driver.Queuer's SubscribeClaim.
func (q *Queue) Subscribe(fence, key, id string, notify func(in time.Duration)) (stop func()) {
	queue := QueueKeys(fence, key)[0]
	receive := func(wait string) {
		if wait == "" { // the subscription has begun
			notify(0)
		} else if ms, err := strconv.Atoi(wait); err == nil {
			notify(time.Duration(ms) * time.Millisecond)
		}
	}
	return q.subscriber.SubscribeNamed(queue+":"+q.locker, id, receive, func(id string) {
		if !q.asked.has(id) {
			q.asked.add(id, driver.NotifyGrace) // one request is enough
			q.dequeue(key, id)
		}
	})
}

// Dequeue returns a call of Release that does not release the claim, but only removes it from the
// queue.
func (q *Queue) Dequeue(release Call) Call {
	release.FurtherArgs[len(release.FurtherArgs)-1] = "Q"
	return release
}

// Queued returns the script that does the same for a claim that respects the queue, or nil.
func (s *Script) Queued() *Script { return s.queued }

// QueueKeys names the Redis keys of a key's queue: queue and waiters. They are in the slot of its
// fence counter.
func QueueKeys(fence, key string) []string {
	prefix := strings.TrimSuffix(fence, "fence")
	return []string{prefix + "queue:" + key, prefix + "waiters:" + key}
}
