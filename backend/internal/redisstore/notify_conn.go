package redisstore

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// pingEvery is how often a connection is asked whether it is alive. If it has not said anything
// until the next time, it is given up: the end of one whose peer has gone without a word shows in
// nothing else for a quarter of an hour.
const pingEvery = 3 * time.Second

// Commands, by the names under which Redis confirms them.
const (
	subscribe    = "subscribe"
	ssubscribe   = "ssubscribe"
	unsubscribe  = "unsubscribe"
	sunsubscribe = "sunsubscribe"
	ping         = "ping"
)

// A conn is one connection of a line, until it breaks. go-redis would connect and subscribe again
// by itself, but with one SSUBSCRIBE for all channels, which a Cluster refuses unless they have
// one slot, and at the same node, whose slots may have gone. So the first error ends it; the
// connection that go-redis has made by then is thrown away.
//
// It belongs to the goroutine of its line, but for what reads it.
type conn struct {
	line    *line
	notices *Notices
	pubsub  *redis.PubSub
	events  chan event
	asked   []question // without an answer so far, in order
	subs    map[string]*sub
	old     bool        // the server does not know SSUBSCRIBE
	heard   atomic.Bool // a message since the last check
}

// An event is what Receive has returned.
type event struct {
	value any
	err   error
}

// A question is a command that the server answers once.
type question struct{ command, channel string }

// A sub is a channel for which the server was asked.
type sub struct {
	topic   *topic
	missing int // confirmations to come
}

func newConn(l *line) *conn {
	return &conn{line: l, notices: l.notices, events: make(chan event, 64), subs: map[string]*sub{}}
}

// serve connects, and keeps listening to the topics of the line until the connection breaks or the
// line ends. What it has started has ended when it returns.
func (c *conn) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	c.pubsub = c.open(ctx)
	defer func() { _ = c.pubsub.Close() }() // all it could say is that it is closed
	defer cancel()

	idle, err := c.update(ctx)
	if err != nil || ctx.Err() != nil {
		return
	}
	c.line.connected()
	reading.Go(func() { c.read(ctx) })

	check := time.NewTicker(pingEvery)
	defer check.Stop()
	silent := false // since the last check
	for err == nil {
		var leave <-chan time.Time
		if idle {
			leave = time.After(linger)
		}
		select {
		case e := <-c.events:
			silent = false
			err = c.hear(ctx, e)
		case <-c.line.kick:
			idle, err = c.update(ctx)
		case <-check.C:
			if !c.heard.Swap(false) && silent {
				return
			}
			silent = true
			err = c.ask(ctx, ping, "")
		case <-leave:
			c.line.leave()
		case <-ctx.Done():
			return
		}
	}
}

// open returns a PubSub to the line's node. It does not connect yet.
func (c *conn) open(ctx context.Context) *redis.PubSub {
	if c.line.node != nil {
		return c.line.node.Subscribe(ctx)
	}
	return c.notices.store.client.Subscribe(ctx)
}

// read wakes those who wait for what is said, and passes on what else comes, until the connection
// breaks.
func (c *conn) read(ctx context.Context) {
	for {
		value, err := c.pubsub.Receive(ctx)
		if m, ok := value.(*redis.Message); ok {
			c.heard.Store(true)
			// from here, as each goroutine on the way costs them time
			c.notices.tell(m.Channel, m.Payload)
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

// update asks for the channels that have come, and no longer for those that have gone. It reports
// whether there is none at all.
func (c *conn) update(ctx context.Context) (idle bool, err error) {
	changes, idle := c.line.takeChanges()
	for channel, t := range changes {
		s := c.subs[channel]
		switch {
		case t == nil && s != nil:
			delete(c.subs, channel)
			err = c.askAll(ctx, channel, unsubscribe, sunsubscribe)
		case t != nil && (s == nil || s.topic != t):
			c.subs[channel] = &sub{topic: t, missing: len(c.commands(subscribe, ssubscribe))}
			err = c.askAll(ctx, channel, subscribe, ssubscribe)
		}
		if err != nil {
			return idle, err
		}
	}
	return idle, nil
}

// commands returns which of the two are to be sent: both perhaps.
func (c *conn) commands(plain, sharded string) []string {
	switch {
	case c.notices.via == ViaPlain || c.old:
		return []string{plain}
	case c.notices.via == ViaSharded:
		return []string{sharded}
	}
	return []string{plain, sharded}
}

func (c *conn) askAll(ctx context.Context, channel, plain, sharded string) error {
	for _, command := range c.commands(plain, sharded) {
		if err := c.ask(ctx, command, channel); err != nil {
			return err
		}
	}
	return nil
}

// ask sends a command. Its answer comes to hear.
func (c *conn) ask(ctx context.Context, command, channel string) error {
	c.asked = append(c.asked, question{command, channel})
	switch command {
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

// answered takes the question off the list, and those before it, and reports whether it was there.
func (c *conn) answered(q question) bool {
	for i, asked := range c.asked {
		if asked == q {
			c.asked = c.asked[i+1:]
			return true
		}
	}
	return false
}

// hear takes in what has come beside messages, and returns an error if the connection is of no use
// any more.
func (c *conn) hear(ctx context.Context, e event) error {
	switch v := e.value.(type) {
	case *redis.Pong:
		c.answered(question{ping, ""})
	case *redis.Subscription:
		asked := c.answered(question{v.Kind, v.Channel})
		switch {
		case v.Kind == subscribe || v.Kind == ssubscribe:
			c.confirmed(v.Channel)
		case v.Kind == sunsubscribe && !asked:
			c.lost(v.Channel) // the slot was moved away
		}
	}
	if e.err == nil || !isReply(e.err) || len(c.asked) == 0 {
		return e.err
	}
	q := c.asked[0]
	c.asked = c.asked[1:]
	return c.refused(ctx, q, e.err)
}

// refused is for a question whose answer was an error.
func (c *conn) refused(ctx context.Context, q question, err error) error {
	switch {
	case q.command != subscribe && q.command != ssubscribe, c.subs[q.channel] == nil:
	case q.command == ssubscribe && kindOf(err) == driver.KindUnsupported:
		c.old = true
		if c.notices.via == ViaSharded {
			return c.ask(ctx, subscribe, q.channel)
		}
		c.confirmed(q.channel) // by the other command
	default:
		c.lost(q.channel)
	}
	return nil
}

// confirmed counts a confirmation for the channel.
func (c *conn) confirmed(channel string) {
	s := c.subs[channel]
	if s == nil || s.topic == nil {
		return
	}
	s.missing--
	if s.missing <= 0 {
		c.notices.confirm(s.topic)
	}
}

// lost is for a channel to which we cannot listen here.
func (c *conn) lost(channel string) {
	s := c.subs[channel]
	if s == nil || s.topic == nil {
		return
	}
	if cluster := c.notices.cluster(); cluster != nil {
		cluster.ReloadState(context.Background())
	}
	c.notices.refuse(s.topic)
	s.topic = nil
}
