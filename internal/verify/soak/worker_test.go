package soak_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// An order is the configuration of a worker, as JSON.
type order struct {
	Name     string
	Backend  string
	Stores   []string // addresses
	Queue    string   // the address of asynq's Redis
	Resource string   // its socket
	Log      string   // the file of its events
}

// A worker is a process that works until the line "rest" comes in. It ends at the line "end".
type worker struct {
	order
	log      *history.Log
	resource *history.Client
	guard    *guard.Guard
	closers  []func() error // of what the Guard needs

	mu sync.Mutex
	// runs that have ended, until their leases are released: by key and fence
	finished map[string]history.Event
	quiet    bool
}

// work is the main of a worker. What goes wrong in it is on its last line.
func work(text string) {
	w := &worker{finished: map[string]history.Event{}}
	err := json.Unmarshal([]byte(text), &w.order)
	if err == nil {
		err = w.open()
	}
	if err == nil {
		err = w.serve(bufio.NewScanner(os.Stdin))
	}
	if err != nil {
		fmt.Println("fails", err)
		os.Exit(1)
	}
	fmt.Println("ended")
}

func (w *worker) open() error {
	file, err := os.OpenFile(w.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w.log = history.NewLog(w.Name, file)
	if w.resource, err = history.Dial(context.Background(), w.Resource); err != nil {
		return err
	}
	var clients []redis.UniversalClient
	for _, addr := range w.Stores {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		w.closers = append(w.closers, rdb.Close)
		clients = append(clients, rdb)
	}
	w.guard, err = guard.New(w.log.Record(backends.On(w.Backend, clients...)), guard.WithoutNamespace(), guard.WithTTL(ttl), guard.WithHook(guard.Hook{Release: w.released}))
	return err
}

// serve starts all work, and follows the lines that come in until one of them ends it.
func (w *worker) serve(orders *bufio.Scanner) error {
	var endings []func(context.Context) error
	for _, start := range []func() (func(context.Context) error, error){w.serveHTTP, w.serveTasks, w.serveScheduler, w.serveCron} {
		end, err := start()
		if err != nil {
			return err
		}
		endings = append(endings, end)
	}
	rest := w.plainWork()
	fmt.Println("works")
	for orders.Scan() {
		switch orders.Text() {
		case "rest":
			rest()
			w.mu.Lock()
			w.quiet = true
			w.mu.Unlock()
			fmt.Println("rests")
		case "each key":
			if err := w.getEachKey(); err != nil {
				return err
			}
			fmt.Println("has had each key")
		case "end":
			return w.end(endings)
		}
	}
	return errors.New("the input has ended before the line \"end\"")
}

// getEachKey holds each of the plain keys once. If the machine stalls for a TTL, that takes
// another try.
func (w *worker) getEachKey() error {
	for _, key := range plainKeys {
		err := guard.ErrLost
		for end := time.Now().Add(soon); errors.Is(err, guard.ErrLost) && time.Now().Before(end); {
			err = w.guard.Do(context.Background(), key, func(ctx context.Context) error { return w.effect(ctx, "", "", time.Millisecond) }, guard.WithWait(soon))
		}
		if err != nil {
			return fmt.Errorf("%s at rest: %w", key, err)
		}
	}
	return nil
}

// end ends all, and fails if something is left.
func (w *worker) end(endings []func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), soon)
	defer cancel()
	var err error
	for _, end := range endings {
		err = errors.Join(err, end(ctx))
	}
	err = errors.Join(err, w.guard.Close(ctx))
	for _, end := range w.closers {
		err = errors.Join(err, end())
	}
	err = errors.Join(err, w.resource.Close(), w.log.Err())
	if err != nil {
		return err
	}
	// go-redis does not end a dial or a read before its own time-outs, which are five seconds.
	for start := time.Now(); time.Since(start) < 15*time.Second; {
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}
