// Coupon is a shop that gives away a hundred coupons. It has three servers, and a thousand users
// who all click twice. The first server that sells is frozen in the middle of its sale.
//
//	go run ./examples/coupon                 a hundred users get one coupon each
//	go run ./examples/coupon -guard=false    the servers give away too many, and users get two
//
// It needs only Go: Redis is inside the program, and the database is a file of bbolt. Start with
// server.go. The last lines are read back from the database. The leases can be in SQL as well:
//
//	go run -tags sql ./examples/coupon -backend sqlite
//	go run -tags sql ./examples/coupon -backend postgres -db postgres:///shop
//	go run -tags sql ./examples/coupon -backend mysql -db 'root@tcp(127.0.0.1:3306)/shop'
package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-1795987d/onerun/examples/internal/embedded"
	"github.com/seed-1795987d/onerun/examples/internal/leases"
	"github.com/seed-1795987d/onerun/guard"
)

const (
	coupons, servers = 100, 3
	ttl              = time.Second // after a crash, the next server can sell this soon
)

func main() {
	guarded := flag.Bool("guard", true, "sell under a lease; false shows what happens without one")
	store := leases.Flags()
	flag.Parse()
	if !report(run(store(), *guarded, 1000)) {
		os.Exit(1)
	}
}

// run opens the shop, lets the users in, and returns what the database has then.
func run(store *leases.Store, guarded bool, users int) stock {
	defer store.Close()
	db := embedded.Open(stock{Remaining: coupons})
	defer db.Close()
	var urls []string
	var frozen atomic.Bool
	for range servers { // each is as a process of its own would be
		g := embedded.Must(guard.New(store.Locker(), guard.WithNamespace("shop"),
			guard.WithTTL(ttl), guard.WithoutRenewal())) // a frozen process does not renew either
		defer g.Close(context.Background())
		web := httptest.NewServer((&server{db: db, guard: g, guarded: guarded, frozen: &frozen}).handler())
		defer web.Close()
		urls = append(urls, web.URL)
	}
	fmt.Printf("%d users click twice on %d servers, for %d coupons\n", users, servers, coupons)
	letIn(users, urls)
	return db.Read()
}

// letIn has each user click twice at the same time, on two servers, with the same key.
func letIn(users int, urls []string) {
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 50}}
	defer client.CloseIdleConnections()
	var all sync.WaitGroup
	for click := range 2 * users {
		url := fmt.Sprintf("%s/claim/user-%d", urls[click%servers], click/2)
		all.Go(func() {
			for again(client, url) {
				time.Sleep(300 * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// again clicks, and reports whether the answer says when to click again, as 409 and 503 do.
func again(client *http.Client, url string) bool {
	request := embedded.Must(http.NewRequest(http.MethodPost, url, http.NoBody))
	request.Header.Set("Idempotency-Key", "spring")
	response := embedded.Must(client.Do(request)) //nolint:bodyclose // closed below
	defer response.Body.Close()
	return response.Header.Get("Retry-After") != ""
}

// report compares it with what is promised.
func report(s stock) (kept bool) {
	kept = true
	line := func(what string, promised, found int) {
		verdict := "ok"
		if found != promised {
			verdict, kept = "WRONG", false
		}
		fmt.Printf("%-25s promised %3d   found %4d   %s\n", what, promised, found, verdict)
	}
	unique := slices.Compact(slices.Sorted(slices.Values(s.Claims)))
	line("coupons given away", coupons, len(s.Claims))
	line("second coupons of a user", 0, len(s.Claims)-len(unique))
	fmt.Println("late writes that the fence kept out:", s.Refused)
	return kept
}
