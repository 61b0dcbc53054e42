package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	users    = 1000
	eager    = 50 // the first users, who click twice, on two servers
	maxTries = 20
)

// A crowd is all the users. They claim at the same time.
type crowd struct {
	servers []string // their addresses
	client  *http.Client

	mu      sync.Mutex
	first   map[int]int // how many clicks got each HTTP status; 0 for those that gave up
	again   int         // how many clicks got an earlier answer of their user again
	retries int
	busy    int // how many of the retries were because another click of the user was under way
}

func newCrowd(servers []string) *crowd {
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * users}
	return &crowd{
		servers: servers,
		client:  &http.Client{Transport: transport, Timeout: 30 * time.Second},
		first:   map[int]int{},
	}
}

// claim has every user claim, and returns when all have an answer or have given up.
func (c *crowd) claim(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	var all sync.WaitGroup
	click := func(user, key string, server int) {
		all.Go(func() { c.click(ctx, user, key, server) })
	}
	for i := range users {
		if i == eager {
			// or the coupons might be gone before a second click counts
			time.Sleep(20 * time.Millisecond)
		}
		user, key := fmt.Sprintf("user-%d", i), fmt.Sprintf("%016x", rand.Uint64())
		click(user, key, i)
		if i < eager {
			click(user, key, i+1)
		}
	}
	all.Wait()
}

// click claims for the user. It tries again on the next server as long as answers say when to do
// so. All clicks and tries of one claim have the same key.
func (c *crowd) click(ctx context.Context, user, key string, server int) {
	var got answer
	for try := range maxTries {
		got = c.post(ctx, user, key, c.servers[(server+try)%len(c.servers)])
		if got.after == 0 {
			break
		}
		c.mu.Lock()
		c.retries++
		if got.status == http.StatusConflict {
			c.busy++
		}
		c.mu.Unlock()
		select {
		case <-time.After(got.after/2 + rand.N(got.after)): // or all would come back at once
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case got.after > 0:
		c.first[0]++
	case got.again:
		c.again++
	default:
		c.first[got.status]++
	}
}

// An answer is a server's reply to a click.
type answer struct {
	status int
	again  bool          // the server has replayed an earlier answer
	after  time.Duration // when to try again, or 0 if the answer is final
}

// post claims once. A server that cannot be reached is like one that says itself when to try
// again.
func (c *crowd) post(ctx context.Context, user, key, server string) answer {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+"/claim/"+user, strings.NewReader(`{"size":"M"}`))
	if err != nil {
		panic(err) // the address and the user are ours
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := c.client.Do(request)
	if err != nil {
		return answer{after: time.Second}
	}
	defer response.Body.Close()
	// so that the connection can be used again
	_, _ = io.Copy(io.Discard, response.Body)
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After")) // 0 if it has none
	return answer{
		status: response.StatusCode,
		again:  response.Header.Get("Idempotency-Replayed") != "",
		after:  time.Duration(seconds) * time.Second,
	}
}

// String says which answers the users got.
func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d claimed, %d had one, %d came too late, %d got the same answer again, %d gave up "+
		"(%d retries, %d of them as another click was under way)",
		c.first[http.StatusOK], c.first[http.StatusConflict], c.first[http.StatusGone], c.again, c.first[0], c.retries, c.busy)
}
