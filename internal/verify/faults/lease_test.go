package faults_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// A held is a lease that a worker has, and its belief in it.
type held struct {
	child  *child
	lease  *guard.Lease
	belief *history.Believer
}

// acquire takes the key, and records how long that took and the belief that starts with it.
func (c *child) acquire(ctx context.Context, key string, opts ...guard.Option) (*held, error) {
	attempt := history.Event{Kind: history.Attempt, Key: key}
	attempt = c.log.Begin(attempt)
	if until, ok := ctx.Deadline(); ok {
		attempt.Deadline = history.Now() + int64(time.Until(until))
	}
	lease, err := c.guard.Acquire(ctx, key, opts...)
	if err != nil {
		attempt.Outcome, attempt.Err = history.Errored, err.Error()
		if errors.Is(err, guard.ErrBusy) {
			attempt.Outcome = history.Busy
		}
		c.log.End(attempt)
		return nil, c.typed(err)
	}
	h := &held{child: c, lease: lease, belief: c.log.Believe(lease, key, c.TTL, attempt.Call)}
	attempt.Outcome = history.OK
	c.log.End(attempt)
	return h, nil
}

// write offers a write, whether the lease is valid or not.
func (h *held) write() (accepted bool, err error) { return h.child.resource.Write(h.belief) }

// release ends the belief and releases the lease.
func (h *held) release(ctx context.Context) error {
	h.belief.End()
	err := h.lease.Release(ctx)
	h.belief.Wait()
	return h.child.typed(err)
}

// leaseCommands deal with one lease each.
var leaseCommands = map[string]command{
	// hold KEY [WAIT] takes the key, waiting up to a time; the answer is its fence.
	"hold": func(c *child, args []string) (string, error) {
		wait := time.Duration(0)
		if len(args) > 1 {
			wait, _ = time.ParseDuration(args[1])
		}
		h, err := c.acquire(context.Background(), args[0], guard.WithWait(wait))
		if err != nil {
			return "", err
		}
		c.held[args[0]] = h
		return fmt.Sprint(h.lease.Fence()), nil
	},
	// within KEY TIME takes the key within a time: that of a context.
	"within": func(c *child, args []string) (string, error) {
		within, _ := time.ParseDuration(args[1])
		ctx, cancel := context.WithTimeout(context.Background(), within)
		defer cancel()
		h, err := c.acquire(ctx, args[0], guard.WithWait(guard.Forever))
		if err != nil {
			return "", err
		}
		c.held[args[0]] = h
		return fmt.Sprint(h.lease.Fence()), nil
	},
	// valid KEY says whether the lease is.
	"valid": func(c *child, args []string) (string, error) { return fmt.Sprint(c.held[args[0]].lease.Valid()), nil },
	// read KEY reads under the lease, valid or not, and says whether that was accepted.
	"read": func(c *child, args []string) (string, error) {
		accepted, err := c.resource.Read(c.held[args[0]].belief)
		return fmt.Sprint(accepted), err
	},
	// write KEY writes under the lease, valid or not, and says whether that was accepted.
	"write": func(c *child, args []string) (string, error) {
		accepted, err := c.held[args[0]].write()
		return fmt.Sprint(accepted), err
	},
	// lost KEY LIMIT waits until the lease is lost; the answer is why.
	"lost": func(c *child, args []string) (string, error) {
		limit, _ := time.ParseDuration(args[1])
		h := c.held[args[0]]
		select {
		case <-h.lease.Context().Done():
		case <-time.After(limit):
			return "", fmt.Errorf("the lease on %s is still believed in after %v", args[0], limit)
		}
		h.belief.Wait()
		var lost *guard.LostError
		if cause := context.Cause(h.lease.Context()); !errors.As(cause, &lost) {
			return "", fmt.Errorf("the lease on %s has ended with %w", args[0], cause)
		}
		return string(lost.Reason), nil
	},
	// release KEY releases the lease.
	"release": func(c *child, args []string) (string, error) {
		h := c.held[args[0]]
		delete(c.held, args[0])
		return "", h.release(context.Background())
	},
	// take KEY acquires the key, waits for it if need be, writes, and releases it.
	"take": func(c *child, args []string) (string, error) {
		h, err := c.acquire(context.Background(), args[0], guard.WithWait(calmLimit))
		if err != nil {
			return "", err
		}
		accepted, err := h.write()
		if err == nil && !accepted && h.lease.Valid() {
			err = fmt.Errorf("the resource has refused a write on %s under a lease that is valid", args[0])
		}
		return fmt.Sprint(h.lease.Fence()), errors.Join(err, h.release(context.Background()))
	},
}
