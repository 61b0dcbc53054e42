package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
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
	answers map[int]int // how many were told what, by HTTP status; 0 for those who gave up
	retries int
}

func newCrowd(servers []string) *crowd {
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * users}
	return &crowd{
		servers: servers,
		client:  &http.Client{Transport: transport, Timeout: 30 * time.Second},
		answers: map[int]int{},
	}
}

// claim has every user claim, and returns when all have been told or have given up.
func (c *crowd) claim(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	var all sync.WaitGroup
	click := func(user, server int) {
		all.Go(func() { c.click(ctx, fmt.Sprintf("user-%d", user), server) })
	}
	for user := range eager {
		click(user, user)
		click(user, user+1)
	}
	time.Sleep(20 * time.Millisecond) // or the coupons might be gone before a second click counts
	for user := eager; user < users; user++ {
		click(user, user)
	}
	all.Wait()
}

// click claims for the user, and tries again, on the next server, while that is what it is told.
func (c *crowd) click(ctx context.Context, user string, server int) {
	told := 0
	for try := range mostTries {
		status, after := c.post(ctx, user, c.servers[(server+try)%len(c.servers)])
		if status != http.StatusServiceUnavailable {
			told = status
			break
		}
		c.mu.Lock()
		c.retries++
		c.mu.Unlock()
		select {
		case <-time.After(after/2 + rand.N(after)): // or all would come back at once
		case <-ctx.Done():
			return
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[told]++
}

// post claims once. It returns the status, and, if that is 503, when to try again. A server that cannot
// be reached is like one that says so itself.
func (c *crowd) post(ctx context.Context, user, server string) (status int, after time.Duration) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+server+"/claim/"+user, nil)
	if err != nil {
		panic(err) // the address and the user are ours
	}
	response, err := c.client.Do(request)
	if err != nil {
		return http.StatusServiceUnavailable, time.Second
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection can be used again
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		seconds = 1
	}
	return response.StatusCode, time.Duration(seconds) * time.Second
}

// String says what the users were told.
func (c *crowd) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("%d claimed, %d had one or were at it, %d came too late, %d gave up (%d retries)",
		c.answers[http.StatusOK], c.answers[http.StatusConflict], c.answers[http.StatusGone], c.answers[0], c.retries)
}
