// Leader is a service in several replicas, of which one reads a feed: the leader. When it stops or
// dies, another one goes on where it was.
//
//	go run ./examples/redis                   a Redis, if you have none
//	go run ./examples/leader -name web-1      in a second terminal
//	go run ./examples/leader -name web-2      in a third
//
// Stop the leader with Ctrl-C: the other one leads at once. Start it again, and kill the new
// leader, or freeze it with Ctrl-Z: the other one leads after the TTL of five seconds. A leader
// that you thaw with fg has lost its term. If it tries to read before it notices that, its term is
// refused.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the lease and the position in the feed are")
	name := flag.String("name", "web", "the name of this replica")
	ttl := flag.Duration("ttl", 5*time.Second, "how long nobody leads after the leader has died")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, *name, *ttl)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leader:", err)
		os.Exit(1)
	}
}

// run takes part in the election until the context ends.
func run(ctx context.Context, addr, name string, ttl time.Duration) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close() // last: the Guard still needs it
	g, err := guard.New(single.New(rdb), guard.WithNamespace("feed"), guard.WithLabel(name), guard.WithTTL(ttl))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(context.Background())) }()

	fmt.Println(name, "stands by")
	err = g.Lead(ctx, "reader", func(ctx context.Context) error {
		fmt.Printf("%s leads in term %d\n", name, guard.Fence(ctx))
		err := read(ctx, rdb, name)
		fmt.Printf("%s leads no more: %v\n", name, cmp.Or(context.Cause(ctx), err))
		return err // after an error, Lead campaigns again a little later
	})
	if ctx.Err() != nil {
		return nil // the process was stopped
	}
	return err
}

// advance takes the next item of the feed, unless a later leader has taken one. It takes the item
// before the leader reads it. So a leader that dies in between leaves one item unread, and no item
// is read twice.
//
// KEYS[1] is the feed, ARGV[1] the term. It returns the item, or 0 if the term is over.
var advance = redis.NewScript(`
if tonumber(redis.call('HGET', KEYS[1], 'term') or 0) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'term', ARGV[1])
return redis.call('HINCRBY', KEYS[1], 'item', 1)`)

var errTermOver = errors.New("a later leader reads the feed")

// read reads the feed while this process leads, which is as long as the context lasts.
func read(ctx context.Context, rdb *redis.Client, name string) error {
	next := time.NewTicker(200 * time.Millisecond)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
		// A process that was frozen here does not lead any more, but believes so. The term is a
		// fence against that.
		term := guard.Fence(ctx)
		item, err := advance.Run(ctx, rdb, []string{"feed"}, term).Uint64()
		if err != nil {
			return err
		}
		if item == 0 {
			return errTermOver
		}
		fmt.Printf("%s read item %d in term %d\n", name, item, term)
	}
}
