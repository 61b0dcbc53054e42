package redissontest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
)

// readUnlockMessage wakes all waiters. Redisson's write locks send it; a plain lock obeys it, too.
const readUnlockMessage = 1

// A Message is what came on the channel of a lock while someone of the client waited for it.
type Message struct {
	Channel string
	Payload string
}

// Number returns the message as Redisson's LongCodec decodes it, or an error where that would
// throw a NumberFormatException. 0 wakes one waiter of the client, 1 all, and others none.
func (m Message) Number() (int64, error) {
	n, err := strconv.ParseInt(m.Payload, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("redissontest: message on %s: %w", m.Channel, err)
	}
	return n, nil
}

// Messages returns all messages so far, in the order in which they came.
func (c *Client) Messages() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.messages)
}

// Malformed returns an error for each message that Redisson could not have decoded, or nil if
// there was none. Such a message wakes nobody.
func (c *Client) Malformed() error {
	var all []error
	for _, m := range c.Messages() {
		_, err := m.Number()
		all = append(all, err)
	}
	return errors.Join(all...)
}

// receive records a message and wakes the waiters that it is for.
func (c *Client) receive(s *subscription, m Message) {
	c.mu.Lock()
	c.messages = append(c.messages, m)
	c.mu.Unlock()
	n, err := m.Number()
	switch {
	case err != nil:
	case n == unlockMessage:
		s.latch.release(1)
	case n == readUnlockMessage:
		s.latch.release(s.latch.waiting.Load())
	}
}
