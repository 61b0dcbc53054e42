package brokers_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	guardwatermill "github.com/seed-1795987d/onerun/middleware/watermill"
)

// A setup is what a consumer has to know, in this process or in one that is killed.
type setup struct {
	Link   link
	Leases string // the address of the Redis of the leases and the log
	Cell   string // the suffix of the topics
	Fault  string // the name of a fault, or ""
}

func (s setup) orders() string  { return "orders_" + s.Cell }
func (s setup) outputs() string { return "outputs_" + s.Cell }

// A consumer is a router with one handler, as in a process.
type consumer struct {
	setup
	log *log

	mu    sync.Mutex
	tries map[string]int // of each event, and of publishing it
	count atomic.Int64   // of runs, for what is killed in the second
	close func()
}

const (
	handling = 30 * time.Millisecond
	// slow is longer than redelivery, so that the broker delivers again.
	slow = 5 * redelivery / 2
)

// start starts a consumer.
func (s setup) start() (*consumer, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Leases})
	c := &consumer{setup: s, log: &log{client: client, key: "log " + s.Cell}, tries: map[string]int{}}
	opts := []guard.Option{guard.WithNamespace(s.Cell)}
	if strings.HasPrefix(s.Fault, "kill") {
		opts = append(opts, guard.WithTTL(2*time.Second)) // the lease ends soon after this process
	}
	g, err := guard.New(single.New(client), opts...)
	if err != nil {
		return nil, err
	}
	once, err := guardwatermill.New(g, guardwatermill.FromMetadata("event_id"), guardwatermill.WithOnce(time.Hour), guardwatermill.WithDelay(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	e, err := s.Link.open()
	if err != nil {
		return nil, err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: 10 * time.Second}, quiet)
	if err != nil {
		return nil, err
	}
	router.AddMiddleware(middleware.Recoverer, c.behindMarker, once)
	router.AddHandler("billing", s.orders(), e.sub, s.outputs(), &faulty{e.pub, c}, c.run)
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	select {
	case <-router.Running():
	case err := <-ended:
		return nil, err
	}
	c.close = func() {
		_ = router.Close() // a connection may have been cut
		if err := <-ended; err != nil {
			fmt.Println("fails: router:", err)
		}
		e.close()
		_ = g.Close(context.Background())
		_ = client.Close()
	}
	return c, nil
}

// run is the handler.
func (c *consumer) run(msg *message.Message) ([]*message.Message, error) {
	event, run := msg.Metadata.Get("event_id"), watermill.NewShortUUID()
	c.log.add("begin", event, run)
	take := handling
	if c.count.Add(1) == 1 && (c.Fault == "running" || c.Fault == "restart") {
		take = slow
	}
	time.Sleep(take)
	switch {
	case c.Fault == "error" && c.first("run "+event):
		c.log.add("failed", event, run)
		return nil, errors.New("failed")
	case c.Fault == "panic" && c.first("run "+event):
		c.log.add("failed", event, run)
		panic("failed")
	}
	c.log.add("handled", event, run)
	if c.Fault == "kill in the handler" && c.count.Load() == 2 {
		die()
	}
	payload := strconv.Quote(event) // JSON, for PostgreSQL
	return []*message.Message{message.NewMessage(run, message.Payload(payload))}, nil
}

// first reports whether it is asked for the first time.
func (c *consumer) first(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tries[what]++
	return c.tries[what] == 1
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// behindMarker is in front of the guard: what comes from there has a marker.
func (c *consumer) behindMarker(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		msgs, err := next(msg)
		if c.Fault == "kill before publishing" && err == nil && c.count.Load() == 2 {
			die()
		}
		return msgs, err
	}
}

// faulty is the publisher of a consumer.
type faulty struct {
	message.Publisher
	c *consumer
}

func (f *faulty) Publish(topic string, msgs ...*message.Message) error {
	if f.c.Fault == "publish" && len(msgs) > 0 && f.c.first("publish "+string(msgs[0].Payload)) {
		return errors.New("failed")
	}
	err := f.Publisher.Publish(topic, msgs...)
	if f.c.Fault == "kill before the ack" && err == nil && f.c.count.Load() == 2 {
		die()
	}
	return err
}

// A log has what the runs of all processes do, in one order.
type log struct {
	client redis.UniversalClient
	key    string
}

func (l *log) add(words ...string) {
	if err := l.client.RPush(context.Background(), l.key, strings.Join(words, " ")).Err(); err != nil {
		fmt.Println("fails: log:", err)
	}
}

func (l *log) all() ([]string, error) {
	return l.client.LRange(context.Background(), l.key, 0, -1).Result()
}
