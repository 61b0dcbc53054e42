// Limit calls a partner that allows three calls at a time, from however many processes there are.
//
//	go run ./examples/redis              a Redis, if you have none
//	go run ./examples/limit -calls 20    in a second terminal, and in a third
//
// The first lines say which seat each call has: no other call has that seat at the time, so it can
// stand for one of three API keys or connections. Kill one process, and its seats are free after
// the TTL of five seconds.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
)

// allowed is how many calls the partner allows at a time.
const allowed = 3

func main() {
	addr := flag.String("redis", "127.0.0.1:6379", "where the leases are")
	calls := flag.Int("calls", 20, "how many calls this process has to make")
	partner := flag.String("partner", "", "the URL of the partner; default: one of our own, which takes 50 to 150 ms")
	flag.Parse()
	if *partner == "" {
		*partner = httptest.NewServer(http.HandlerFunc(serve)).URL
	}
	if err := run(context.Background(), *addr, *partner, *calls); err != nil {
		fmt.Fprintln(os.Stderr, "limit:", err)
		os.Exit(1)
	}
}

// serve is the partner.
func serve(http.ResponseWriter, *http.Request) {
	time.Sleep(50*time.Millisecond + rand.N(100*time.Millisecond))
}

// run makes all calls, as many of them at a time as the partner allows to all processes together.
func run(ctx context.Context, addr, partner string, calls int) (err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	g, err := guard.New(single.New(rdb), guard.WithNamespace("shipping"), guard.WithTTL(5*time.Second))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close(ctx)) }()

	var all sync.WaitGroup
	errs := make([]error, calls)
	for i := range calls {
		all.Go(func() {
			errs[i] = g.Do(ctx, "partner", func(ctx context.Context) error {
				lease, _ := guard.FromContext(ctx)
				fmt.Printf("call %d has seat %d\n", i+1, lease.Seat())
				return call(ctx, partner)
			}, guard.WithLimit(allowed), guard.WithWait(time.Minute))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func call(ctx context.Context, partner string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, partner, strings.NewReader("a parcel"))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
