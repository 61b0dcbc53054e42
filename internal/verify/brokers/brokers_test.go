// Package brokers_test tries guardwatermill on the brokers of Watermill, under faults. It is in
// this module because of the brokers' packages.
package brokers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	// consumerEnv makes the test binary a consumer. Its value is the setup.
	consumerEnv = "ONERUN_BROKERS_CONSUMER"
	// longEnv has the number of messages of each cell in the long form.
	longEnv = "ONERUN_BROKERS"
	// markdownEnv has the long form write the table into the page.
	markdownEnv = "ONERUN_BROKERS_MD"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(consumerEnv); text != "" {
		var s setup
		err := json.Unmarshal([]byte(text), &s)
		if err == nil {
			_, err = s.start()
		}
		if err != nil {
			fmt.Println("fails:", err)
			return
		}
		fmt.Println("consumes")
		select {}
	}
	redistest.AtOnce(32) // they wait
	os.Exit(m.Run())
}

// A fault is what happens while messages are handled.
type fault struct {
	name, says string
	repeats    bool // the handler of a message may succeed twice
}

var faults = []fault{
	{name: "error", says: "the handler of each message fails once"},
	{name: "panic", says: "the handler of each message panics once"},
	{name: "publish", says: "publishing fails once for each message"},
	{name: "twice", says: "the producer sends each message twice"},
	{name: "running", says: "a message comes again while it is handled"},
	{name: "kill in the handler", says: "`kill -9` at the end of a handler", repeats: true},
	{name: "kill before publishing", says: "`kill -9` after the marker, before publishing"},
	{name: "kill before the ack", says: "`kill -9` after publishing, before the acknowledgement"},
	{name: "restart", says: "the broker restarts while a message is handled"},
}

func (f fault) kills() bool { return strings.HasPrefix(f.name, "kill") }

// possible reports whether a broker can have the fault.
func (f fault) possible(b broker) bool {
	return b.restart != nil || !f.kills() && f.name != "restart"
}

// A result is what was found in a cell.
type result struct{ messages, lost, handledAgain, publishedAgain int }

// A cell is one fault on one broker.
type cell struct {
	setup
	t      testing.TB
	fault  fault
	broker broker
	n      int
	log    *log

	mu   sync.Mutex
	came map[string]map[string]int // the outputs: of each event, the UUIDs and how often they came
}

func (c *cell) run() result {
	client := redis.NewClient(&redis.Options{Addr: c.Leases})
	c.t.Cleanup(func() { _ = client.Close() })
	c.log, c.came = &log{client: client, key: "log " + c.Cell}, map[string]map[string]int{}
	e, err := c.Link.open()
	require.NoError(c.t, err)
	c.t.Cleanup(e.close)
	require.NoError(c.t, e.initialize(c.orders()))
	c.count(e)
	if c.fault.kills() {
		for range c.kills() {
			victim := c.child()
			c.publish(e.pub, c.n/c.kills())
			<-victim.Done()
		}
		c.consume("")
	} else {
		c.consume(c.fault.name)
		c.publish(e.pub, c.n)
		c.strike()
	}
	return c.judge()
}

// kills returns how many consumers are killed.
func (c *cell) kills() int { return max(1, c.n/10) }

// count counts what the handlers have produced.
func (c *cell) count(e endpoints) {
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	msgs, err := e.sub.Subscribe(ctx, c.outputs())
	require.NoError(c.t, err)
	go func() {
		for m := range msgs {
			c.mu.Lock()
			uuids := c.came[string(m.Payload)]
			if uuids == nil {
				uuids = map[string]int{}
				c.came[string(m.Payload)] = uuids
			}
			uuids[m.UUID]++
			c.mu.Unlock()
			m.Ack()
		}
	}()
}

// child starts a consumer that is going to be killed.
func (c *cell) child() *processtest.Child {
	s := c.setup
	s.Fault = c.fault.name
	text, err := json.Marshal(s)
	require.NoError(c.t, err)
	child := processtest.Self(c.t, consumerEnv+"="+string(text))
	child.Says("consumes")
	return child
}

// consume starts two consumers, as in two processes. A broker without groups delivers each message
// to both, so it has one, except for the fault that this is.
func (c *cell) consume(fault string) {
	n := 2
	if c.Link.inProcess != nil && fault != "running" {
		n = 1
	}
	for range n {
		s := c.setup
		s.Fault = fault
		consumer, err := s.start()
		require.NoError(c.t, err)
		c.t.Cleanup(consumer.close)
	}
}

// publish sends messages. It tries again if a connection was cut, as a producer does.
func (c *cell) publish(pub message.Publisher, n int) {
	times := 1
	if c.fault.name == "twice" {
		times = 2
	}
	for range n {
		id := watermill.NewShortUUID()
		for range times {
			m := message.NewMessage(watermill.NewUUID(), message.Payload(`{}`))
			m.Metadata.Set("event_id", id)
			require.Eventually(c.t, func() bool { return pub.Publish(c.orders(), m) == nil }, 30*time.Second, 20*time.Millisecond)
		}
	}
}

// strike does what needs more than a consumer.
func (c *cell) strike() {
	cuts, restarts := c.fault.name == "running" && c.broker.cut != nil, c.fault.name == "restart"
	if !cuts && !restarts {
		return
	}
	require.Eventually(c.t, func() bool {
		lines, err := c.log.all()
		return err == nil && len(lines) > 0
	}, 30*time.Second, 5*time.Millisecond, "a run has begun")
	if cuts {
		c.broker.cut(c.t, c.orders())
	} else {
		c.broker.restart(c.t)
	}
}

// judge waits until all is handled, and asserts what docs/watermill.md says.
func (c *cell) judge() result {
	require.Eventually(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.came) >= c.n
	}, 60*time.Second, 20*time.Millisecond, "messages are lost")
	time.Sleep(3 * redelivery / 2) // for what comes again
	r := c.handled()
	c.mu.Lock()
	defer c.mu.Unlock()
	r.lost = c.n - len(c.came)
	for event, uuids := range c.came {
		require.Len(c.t, uuids, 1, "the outputs of two runs of %s", event)
		for _, n := range uuids {
			r.publishedAgain += n - 1
		}
	}
	if !c.fault.repeats {
		require.Zero(c.t, r.handledAgain, "handled again")
	}
	require.LessOrEqual(c.t, r.handledAgain, c.kills(), "more than were killed")
	return r
}

// handled reads the log: how often handlers have succeeded, and that no two were at work on one
// message.
func (c *cell) handled() (r result) {
	lines, err := c.log.all()
	require.NoError(c.t, err)
	working, done := map[string]string{}, map[string]int{}
	for _, line := range lines {
		var what, event, run string
		_, err := fmt.Sscan(line, &what, &event, &run)
		require.NoError(c.t, err)
		if what == "begin" {
			require.Empty(c.t, working[event], "two runs of a message at a time: %q", lines)
			working[event] = run
			continue
		}
		require.Equal(c.t, working[event], run)
		delete(working, event)
		if what == "handled" {
			done[event]++
		}
	}
	r.messages = c.n
	for _, n := range done {
		r.handledAgain += n - 1
	}
	require.Len(c.t, done, c.n)
	return r
}
