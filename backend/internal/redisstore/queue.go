package redisstore

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Queue makes the claims of one Locker respect the queues of waiters, see queue.lua. It is safe
// for concurrent use.
type Queue struct {
	program    *Program
	subscriber *Subscriber
	locker     string // identifies the Locker among all others
	publish    string // how to publish
}

// Queue returns the Queue of a Locker. It receives notifications through the Subscriber.
func (p *Program) Queue(subscriber *Subscriber) *Queue {
	q := &Queue{program: p, subscriber: subscriber, locker: rand.Text(), publish: "plain"}
	if subscriber.via != ViaPlain {
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
	queue, waiters := queueKeys(fence, c.Key)
	call.Script = q.program.queuedAcquire
	call.FurtherKeys = []string{queue, waiters}
	call.FurtherArgs = []any{queued, q.locker, q.publish, Milliseconds(c.TTL)}
	return call
}

// Release returns the call for a claim that is not driver.Unqueued. leave is that of Leave.
func (q *Queue) Release(c driver.Claim, call Call, fence, leave string) Call {
	queue, waiters := queueKeys(fence, c.Key)
	call.Script = q.program.queuedRelease
	call.FurtherKeys = []string{queue, waiters}
	call.FurtherArgs = []any{q.publish, leave}
	return call
}

// Subscribe is driver.Queuer's SubscribeClaim.
func (q *Queue) Subscribe(fence, key, id string, notify func(in time.Duration)) (stop func()) {
	queue, _ := queueKeys(fence, key)
	return q.subscriber.Subscribe(queue+":"+q.locker, func(message string) {
		if message == "" { // the subscription has begun
			notify(0)
			return
		}
		if wait, ok := strings.CutPrefix(message, id+" "); ok {
			if ms, err := strconv.Atoi(wait); err == nil {
				notify(time.Duration(ms) * time.Millisecond)
			}
		}
	})
}

// queueKeys names the Redis keys of a key's queue. They are in the slot of its fence counter.
func queueKeys(fence, key string) (queue, waiters string) {
	prefix := strings.TrimSuffix(fence, "fence")
	return prefix + "queue:" + key, prefix + "waiters:" + key
}
