package redissontest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	subscriptionTimeout = 7500 * time.Millisecond // Redisson's default, after which lock() fails
	resubscribeAfter    = time.Second             // after a connection is lost
	unsubscribeTimeout  = time.Second             // for a confirmation nobody depends on
)

var errSubscription = errors.New("the subscription was not confirmed in time")

// subscription is what all waiters of a client on one lock share. Each subscription has a
// connection of its own, while Redisson puts five on one: a Cluster's sharded channels may belong
// to different nodes.
type subscription struct {
	channel string
	users   int // under the client's mu
	latch   *latch
	pubsub  *redis.PubSub
	ready   chan struct{} // closed when Redis has confirmed it
	confirm func()        // closes ready
	leaving chan struct{} // closed by the last user
	gone    chan struct{} // closed when its goroutine has ended
}

// subscribe returns once the channel is subscribed to. Unless it fails, unsubscribe has to follow.
func (c *Client) subscribe(ctx context.Context, channel string) (*subscription, error) {
	s := c.join(channel)
	var err error
	select {
	case <-s.ready:
		return s, nil
	case <-time.After(subscriptionTimeout):
		err = errSubscription
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.unsubscribe(s)
	return nil, err
}

func (c *Client) join(channel string) *subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.subscriptions[channel]
	if s == nil {
		s = &subscription{
			// sends nothing yet
			channel: channel, latch: newLatch(), pubsub: c.rdb.Subscribe(context.Background()),
			ready: make(chan struct{}), leaving: make(chan struct{}), gone: make(chan struct{}),
		}
		s.confirm = sync.OnceFunc(func() { close(s.ready) })
		c.subscriptions[channel] = s
		go c.listen(s)
	}
	s.users++
	return s
}

// unsubscribe sends UNSUBSCRIBE for the last user, and returns when the goroutine has ended.
func (c *Client) unsubscribe(s *subscription) {
	c.mu.Lock()
	s.users--
	last := s.users == 0
	if last {
		delete(c.subscriptions, s.channel)
	}
	c.mu.Unlock()
	if !last {
		return
	}
	close(s.leaving)
	select {
	case <-s.ready:
		if c.sendUnsubscribe(s) == nil {
			s.awaitEnd()
		}
	default:
	}
	_ = s.pubsub.Close()
	<-s.gone
}

func (s *subscription) awaitEnd() {
	select {
	case <-s.gone:
	case <-time.After(unsubscribeTimeout):
	}
}

// listen owns the connection until the last user has left, and then has it closed.
func (c *Client) listen(s *subscription) {
	defer close(s.gone)
	for c.sendSubscribe(s) != nil {
		s.pause()
		if s.left() {
			return
		}
	}
	for {
		received, err := s.pubsub.Receive(context.Background()) // until it is closed
		if err != nil {
			// go-redis has connected and subscribed again, or else does so at the next Receive
			s.pause()
		}
		switch r := received.(type) {
		case *redis.Message:
			c.receive(s, Message{Channel: r.Channel, Payload: r.Payload})
			continue
		case *redis.Subscription:
			if r.Kind == "subscribe" || r.Kind == "ssubscribe" {
				s.confirm()
				continue
			}
		}
		if s.left() {
			return
		}
	}
}

// pause passes the time until the next attempt to connect, or until the last user has left.
func (s *subscription) pause() {
	select {
	case <-s.leaving:
	case <-time.After(resubscribeAfter):
	}
}

func (s *subscription) left() bool {
	select {
	case <-s.leaving:
		return true
	default:
		return false
	}
}

func (c *Client) sendSubscribe(s *subscription) error {
	if c.sharded {
		return s.pubsub.SSubscribe(context.Background(), s.channel)
	}
	return s.pubsub.Subscribe(context.Background(), s.channel)
}

func (c *Client) sendUnsubscribe(s *subscription) error {
	if c.sharded {
		return s.pubsub.SUnsubscribe(context.Background(), s.channel)
	}
	return s.pubsub.Unsubscribe(context.Background(), s.channel)
}
