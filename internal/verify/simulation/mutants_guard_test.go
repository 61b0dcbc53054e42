//go:build !race

package simulation_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// These break what a Guard does: what it asks the store for, and how its callers wait.

// asksFor has Guards ask for something else to be left behind.
func asksFor(change func(c driver.Claim, after driver.After) driver.After) mutation {
	return mutation{asks: func(inner guard.Locker, _ *process) guard.Locker {
		return leaver{driver.Wrapper{Locker: inner}, change}
	}}
}

type leaver struct {
	driver.Wrapper
	change func(c driver.Claim, after driver.After) driver.After
}

func (m leaver) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return m.Locker.Release(ctx, c, m.change(c, after))
}

func noMarker(_ driver.Claim, after driver.After) driver.After {
	if after.Done {
		return driver.After{}
	}
	return after
}

func noMarkerOfTicks(c driver.Claim, after driver.After) driver.After {
	if strings.Contains(c.Key, "@") {
		return driver.After{}
	}
	return after
}

func noHold(_ driver.Claim, after driver.After) driver.After {
	if !after.Done {
		return driver.After{}
	}
	return after
}

// markFailures has runs that have failed count as done.
func markFailures(c driver.Claim, after driver.After) driver.After {
	if after.Keep == 0 && strings.HasPrefix(c.Key, "once") {
		return driver.After{Keep: longestWindow, Done: true}
	}
	return after
}

// lastAgain sends a waiter to the end of the queue each time that it finds the key busy.
func lastAgain(inner doer) doer {
	return func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error {
		for {
			err := inner(ctx, key, f, append(opts[:len(opts):len(opts)], guard.WithWait(15*time.Millisecond))...)
			if !errors.Is(err, guard.ErrBusy) || ctx.Err() != nil {
				return err
			}
			time.Sleep(time.Microsecond)
		}
	}
}

// ignoresContext has a call go on after its context has ended.
func ignoresContext(inner doer) doer {
	return func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		return inner(ctx, key, f, opts...)
	}
}

// untyped loses the kind of an error.
func untyped(inner doer) doer {
	return func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error {
		if err := inner(ctx, key, f, opts...); err != nil {
			return errors.New(err.Error())
		}
		return nil
	}
}

// leaverKeepsPosition has each call wait for the one before it, also if that one has left. Calls
// with a deadline do not wait.
func leaverKeepsPosition(inner doer) doer {
	var mu sync.Mutex
	ends := map[string]chan struct{}{} // of the last call in the queue
	return func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error {
		if _, ok := ctx.Deadline(); ok {
			return inner(ctx, key, f, opts...)
		}
		mu.Lock()
		before, mine := ends[key], make(chan struct{})
		ends[key] = mine
		mu.Unlock()
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(2 * time.Second):
				return guard.ErrBusy
			}
		}
		defer close(mine)
		return inner(ctx, key, f, opts...)
	}
}
