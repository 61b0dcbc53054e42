package soak_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/stretchr/testify/require"
)

// A demand is what the world asks of the workers: requests, each of which two clients send until
// they have an answer, and tasks, of which each job has two.
type demand struct {
	site      *site
	client    *asynq.Client
	inspector *asynq.Inspector
	web       *http.Client
	stop      chan struct{}
	ended     context.Context // nobody has to have an answer any more
	end       context.CancelFunc
	all       sync.WaitGroup
	asking    sync.WaitGroup

	mu      sync.Mutex
	asked   []string // what has to be done, as workers call it
	tries   int
	refused int // answers that were none
}

func newDemand(s *site) *demand {
	at := asynq.RedisClientOpt{Addr: s.queue.Addr()}
	d := &demand{
		site: s, client: asynq.NewClient(at), inspector: asynq.NewInspector(at),
		web: &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{}}, stop: make(chan struct{}),
	}
	d.ended, d.end = context.WithCancel(context.Background())
	s.t.Cleanup(func() {
		d.end()
		d.rest()
		d.asking.Wait()
		d.web.CloseIdleConnections()
		_ = d.client.Close()
		_ = d.inspector.Close()
	})
	d.all.Go(func() { d.every(100*time.Millisecond, d.request) })
	d.all.Go(func() { d.every(150*time.Millisecond, d.enqueue) })
	return d
}

// every calls f with 0, 1 and so on, until the demand rests.
func (d *demand) every(pause time.Duration, f func(n int)) {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	for n := 0; ; n++ {
		select {
		case <-ticker.C:
			f(n)
		case <-d.stop:
			return
		}
	}
}

// rest ends what asks for more.
func (d *demand) rest() {
	d.mu.Lock()
	select {
	case <-d.stop:
	default:
		close(d.stop)
	}
	d.mu.Unlock()
	d.all.Wait()
}

func (d *demand) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, what)
}

func (d *demand) request(n int) {
	key := fmt.Sprint(n)
	d.note("request " + key)
	for range 2 {
		d.asking.Go(func() {
			// what Retry-After would be for people
			for pause := 100 * time.Millisecond; d.ended.Err() == nil && !d.try(key); pause = min(2*pause, 5*time.Second) {
				time.Sleep(pause)
			}
		})
	}
}

// try sends a request to any worker, and reports whether it was answered.
func (d *demand) try(key string) bool {
	r, err := http.NewRequestWithContext(d.ended, http.MethodPost, d.site.url(rand.N(workers)), strings.NewReader("body"))
	if err != nil {
		return false
	}
	r.Header.Set("Idempotency-Key", key)
	answer, err := d.web.Do(r)
	if err == nil {
		_ = answer.Body.Close()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	if err == nil && answer.StatusCode == http.StatusCreated {
		return true
	}
	d.refused++
	return false
}

func (d *demand) enqueue(n int) {
	payload, err := json.Marshal(job{fmt.Sprint(n)})
	if err != nil {
		return
	}
	d.note(fmt.Sprint("task ", n))
	for range 2 {
		_, err := d.client.EnqueueContext(d.ended, asynq.NewTask("job", payload), asynq.MaxRetry(10_000))
		if err != nil {
			d.site.t.Errorf("enqueue: %v", err)
		}
	}
}

// requireMet waits until all that was asked for has been answered, and no task is left.
func (d *demand) requireMet(t *testing.T) {
	t.Helper()
	answered := make(chan struct{})
	go func() { d.asking.Wait(); close(answered) }()
	select {
	case <-answered:
	case <-time.After(soon):
		require.FailNow(t, "requests that were never answered")
	}
	for end := time.Now().Add(soon); ; time.Sleep(100 * time.Millisecond) { // between two looks
		n, archived := d.site.unfinished(d.inspector)
		require.Zero(t, archived, "tasks that were given up")
		if n == 0 {
			return
		}
		require.True(t, time.Now().Before(end), "%d tasks that were never done", n)
		d.site.bringBack(d.site.abandoned())
	}
}
