package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A waiting is a call that continues while its worker runs other commands.
type waiting struct {
	key   string
	waits chan struct{} // has an element once the call has found the key busy
	leave context.CancelFunc
	done  chan struct{} // closed when it has returned:
	held  *held
	err   error
}

// awaitCommands are about such calls.
var awaitCommands = map[string]command{
	// await NAME KEY [fair] [wait=TIME] [once=TIME] begins to wait for the key.
	"await": func(c *child, args []string) (string, error) {
		ctx, leave := context.WithCancel(context.Background())
		w := &waiting{key: args[1], waits: make(chan struct{}, 1), leave: leave, done: make(chan struct{})}
		opts := append(awaitOptions(args[2:]), guard.WithHook(guard.Hook{Wait: func(context.Context, guard.WaitEvent) { w.waits <- struct{}{} }}))
		c.waiting[args[0]] = w
		go func() {
			defer close(w.done)
			w.held, w.err = c.acquire(ctx, w.key, opts...)
		}()
		return "", nil
	},
	// busy NAME returns when the call has found the key busy.
	"busy": func(c *child, args []string) (string, error) {
		w := c.waiting[args[0]]
		select {
		case <-w.waits:
			return "", nil
		case <-w.done:
			return "", fmt.Errorf("%s has not waited: %w", args[0], w.err)
		}
	},
	// desert NAME ends the call's context and returns when the call has.
	"desert": func(c *child, args []string) (string, error) {
		w := c.waiting[args[0]]
		w.leave()
		<-w.done
		return fmt.Sprint(w.err), nil
	},
	// waits NAME says whether the call has not returned yet.
	"waits": func(c *child, args []string) (string, error) {
		select {
		case <-c.waiting[args[0]].done:
			return "false", nil
		default:
			return "true", nil
		}
	},
	// got NAME returns when the call has got its key; the answer is its fence.
	"got": func(c *child, args []string) (string, error) {
		w := c.waiting[args[0]]
		<-w.done
		if w.err != nil {
			return "", w.err
		}
		c.held[w.key] = w.held
		return fmt.Sprint(w.held.lease.Fence()), nil
	},
	// finish KEY releases a lease that was acquired with once, and leaves a marker.
	"finish": func(c *child, args []string) (string, error) {
		h := c.held[args[0]]
		delete(c.held, args[0])
		h.belief.End()
		defer h.belief.Wait()
		return "", h.lease.Complete(context.Background())
	},
	// takes KEY N acquires and releases a key N times.
	"takes": func(c *child, args []string) (string, error) {
		n, err := strconv.Atoi(args[1])
		for range n {
			err = errors.Join(err, c.guard.Do(context.Background(), args[0], func(context.Context) error { return nil }))
		}
		return "", err
	},
	// metrics says what went wrong so far, as an operator sees it.
	"metrics": func(c *child, _ []string) (string, error) { return strings.Join(c.metrics.Lines(), "; "), nil },
	// now reads the wall clock.
	"now": func(*child, []string) (string, error) { return fmt.Sprint(time.Now().UnixNano()), nil },
}

func awaitOptions(words []string) []guard.Option {
	opts := []guard.Option{guard.WithWait(guard.Forever)}
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		d, _ := time.ParseDuration(value)
		switch name {
		case "fair":
			opts = append(opts, guard.WithFair())
		case "wait":
			opts = append(opts, guard.WithWait(d))
		case "once":
			opts = append(opts, guard.WithOnce(d))
		}
	}
	return opts
}
