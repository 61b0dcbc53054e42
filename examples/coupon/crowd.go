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
	users     = 1000
	eager     = 50 // of them, who are the first and click twice, on two servers
	mostTries = 20
)

// A crowd is the users, who all claim at once.
type crowd struct {
	servers []string // their addresses
	client  *http.Client

	mu      sync.Mutex
	first   map[int]int // how many clicks were told what, by HTTP status; 0 for those who gave up
	again   int         // how many were told what their user was told before
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

// claim has every user claim, and returns when all have been told or have given up.
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

// click claims for the user, and tries again, on the next server, for as long as it is told when.
// All clicks and tries of one claim have the same key.
func (c *crowd) click(ctx context.Context, user, key string, server int) {
	var told answer
	for try := range mostTries {
		told = c.post(ctx, user, key, c.servers[(server+try)%len(c.servers)])
		if told.after == 0 {
			break
		}
		c.mu.Lock()
		c.retries++
		if told.status == http.StatusConflict {
			c.busy++
		}
		c.mu.Unlock()
		select {
		case <-time.After(told.after/2 + rand.N(told.after)): // or all would come back at once
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case told.after > 0:
		c.first[0]++
	case told.again:
		c.again++
	default:
		c.first[told.status]++
	}
}

// An answer is what a click is told.
type answer struct {
	status int
	again  bool          // it is what the user was told before
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

// String says what the users were told.
func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d claimed, %d had one, %d came too late, %d got the same answer again, %d gave up "+
		"(%d retries, %d of them as another click was under way)",
		c.first[http.StatusOK], c.first[http.StatusConflict], c.first[http.StatusGone], c.again, c.first[0], c.retries, c.busy)
}
