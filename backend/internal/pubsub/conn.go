package pubsub

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/internal/rediserr"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// pingEvery is the interval between two pings on a connection. If nothing arrives from one ping to
// the next, the connection is closed. Without pings, it takes a quarter of an hour to notice that
// the peer has vanished.
const pingEvery = 3 * time.Second

// Commands, by the names under which Redis confirms them.
const (
	subscribe    = "subscribe"
	ssubscribe   = "ssubscribe"
	unsubscribe  = "unsubscribe"
	sunsubscribe = "sunsubscribe"
	ping         = "ping"
)

// A conn is one connection of a nodeConn, until it breaks. The first error ends it, and the
// connection that go-redis has made by then is discarded. go-redis would connect and subscribe
// again, but with one SSUBSCRIBE for all channels and at the same node. A Cluster refuses that if
// the channels have several slots, and the slots may have moved to another node.
//
// Only the goroutine of its nodeConn uses it, apart from read.
type conn struct {
	node       *nodeConn
	subscriber *Subscriber
	pubsub     *redis.PubSub
	events     chan event
	pending    []command // sent and not answered, in order
	channels   map[string]*channelState
	old        bool        // the server does not know SSUBSCRIBE
	received   atomic.Bool // a message has arrived since the last ping
	locked     atomic.Bool // a panic in Receive has left pubsub locked, without a connection
}

// An event is a result of Receive.
type event struct {
	value any
	err   error
}

// A command is a command that the server answers once.
type command struct{ name, channel string }

// A channelState is a channel for which a subscribe command was sent.
type channelState struct {
	subscription *subscription // nil after a refusal
	missing      int           // confirmations that have not arrived
}

func newConn(n *nodeConn) *conn {
	return &conn{
		node: n, subscriber: n.subscriber, events: make(chan event, 64), channels: map[string]*channelState{},
	}
}

// serve connects, and subscribes to the channels of the nodeConn until the connection breaks or
// the nodeConn ends. No goroutine of its own is left when it returns.
func (c *conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	c.pubsub = c.open(ctx)
	defer func() {
		if !c.locked.Load() {
			_ = c.pubsub.Close() // the only error says that it is closed
		}
	}()
	defer cancel()

	err := c.update(ctx)
	if err != nil || ctx.Err() != nil {
		return
	}
	reading.Go(func() { c.read(ctx) })

	check := time.NewTicker(pingEvery)
	defer check.Stop()
	silent := false // since the last ping
	for err == nil {
		select {
		case e := <-c.events:
			silent = false
			err = c.handle(ctx, e)
		case <-c.node.changes:
			err = c.update(ctx)
		case <-check.C:
			if !c.received.Swap(false) && silent {
				return
			}
			silent = true
			err = c.send(ctx, ping, "")
		case <-ctx.Done():
			return
		}
	}
}

// open returns a PubSub to the node. It does not connect yet.
func (c *conn) open(ctx context.Context) *redis.PubSub {
	if c.node.node != nil {
		return c.node.node.Subscribe(ctx)
	}
	return c.subscriber.client.Subscribe(ctx)
}

// read delivers messages, and sends other events to serve, until the connection breaks.
func (c *conn) read(ctx context.Context) {
	for {
		var value any
		err := rediserr.Recovered(func() (err error) {
			value, err = c.pubsub.Receive(ctx)
			return err
		})
		if _, ok := err.(*rediserr.HookPanic); ok { //nolint:errorlint // it is never wrapped
			c.locked.Store(true)
		}
		if m, ok := value.(*redis.Message); ok {
			c.received.Store(true)
			// from this goroutine, as another one would add to the latency
			c.subscriber.deliver(m.Channel, m.Payload)
			continue
		}
		select {
		case c.events <- event{value, err}:
		case <-ctx.Done():
			return
		}
		if err != nil && !isReply(err) {
			return
		}
	}
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func (c *conn) update(ctx context.Context) error {
	for name, sub := range c.node.takeChanges() {
		var err error
		ch := c.channels[name]
		switch {
		case sub == nil && ch != nil:
			delete(c.channels, name)
			err = c.sendEach(ctx, name, unsubscribe, sunsubscribe)
		case sub != nil && (ch == nil || ch.subscription != sub):
			c.channels[name] = &channelState{sub, len(c.commands(subscribe, ssubscribe))}
			err = c.sendEach(ctx, name, subscribe, ssubscribe)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *conn) commands(plain, sharded string) []string {
	switch {
	case c.subscriber.via == ViaPlain || c.old:
		return []string{plain}
	case c.subscriber.via == ViaSharded:
		return []string{sharded}
	}
	return []string{plain, sharded}
}

func (c *conn) sendEach(ctx context.Context, channel, plain, sharded string) error {
	for _, name := range c.commands(plain, sharded) {
		if err := c.send(ctx, name, channel); err != nil {
			return err
		}
	}
	return nil
}

// send sends a command. handle gets the answer.
func (c *conn) send(ctx context.Context, name, channel string) error {
	c.pending = append(c.pending, command{name, channel})
	switch name {
	case subscribe:
		return c.pubsub.Subscribe(ctx, channel)
	case ssubscribe:
		return c.pubsub.SSubscribe(ctx, channel)
	case unsubscribe:
		return c.pubsub.Unsubscribe(ctx, channel)
	case sunsubscribe:
		return c.pubsub.SUnsubscribe(ctx, channel)
	}
	return c.pubsub.Ping(ctx)
}

// answered removes the command, and those sent before it, from pending. It reports whether the
// command was pending.
func (c *conn) answered(name, channel string) bool {
	i := slices.Index(c.pending, command{name, channel})
	c.pending = c.pending[i+1:]
	return i >= 0
}

// handle handles an event that is not a message. It returns an error if the connection is of no
// use any more.
func (c *conn) handle(ctx context.Context, e event) error {
	switch v := e.value.(type) {
	case *redis.Pong:
		c.answered(ping, "")
	case *redis.Subscription:
		pending := c.answered(v.Kind, v.Channel)
		switch {
		case v.Kind == subscribe || v.Kind == ssubscribe:
			c.confirmed(v.Channel)
		case v.Kind == sunsubscribe && !pending:
			c.lost(v.Channel) // the slot has moved to another node
		}
	}
	if e.err == nil || !isReply(e.err) || len(c.pending) == 0 {
		return e.err
	}
	first := c.pending[0]
	c.pending = c.pending[1:]
	return c.refused(ctx, first, e.err)
}

// refused handles an error that is the answer to a command.
func (c *conn) refused(ctx context.Context, cmd command, err error) error {
	switch {
	case cmd.name != subscribe && cmd.name != ssubscribe, c.channels[cmd.channel] == nil:
	case cmd.name == ssubscribe && rediserr.KindOf(err) == driver.KindUnsupported:
		c.old = true
		if c.subscriber.via == ViaSharded {
			return c.send(ctx, subscribe, cmd.channel)
		}
		c.confirmed(cmd.channel) // the answer to SUBSCRIBE counts alone
	default:
		c.lost(cmd.channel)
	}
	return nil
}

func (c *conn) confirmed(channel string) {
	ch := c.channels[channel]
	if ch == nil || ch.subscription == nil {
		return
	}
	ch.missing--
	if ch.missing <= 0 {
		c.subscriber.confirmed(ch.subscription)
	}
}

// lost gives up the channel on this node, and has the Subscriber look for another node.
func (c *conn) lost(channel string) {
	ch := c.channels[channel]
	if ch == nil || ch.subscription == nil {
		return
	}
	if cluster := c.subscriber.cluster(); cluster != nil {
		cluster.ReloadState(context.Background())
	}
	c.subscriber.refused(ch.subscription)
	ch.subscription = nil
}
