package faults_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// Faults inside of the worker's process.
var clientRows = []row{
	{number: 24, name: "the application empties the connection pool", backends: everyone, ci: []string{"single"}, run: emptyPool},
	{number: 25, name: "client closed under the Guard", backends: everyone, ci: []string{"reentrant"}, run: closedClient,
		shows: map[string]string{"": `error.type=closed`}},
	{number: 25, name: "context already cancelled, panic, Goexit", backends: everyone, ci: []string{"redlock"}, beliefs: 6, run: endings},
}

// clientCommands break, or abuse, what the Guard was given.
var clientCommands = map[string]command{
	// pop TIME takes the only connection of each client's pool for a time, and says when it has
	// it.
	"pop": func(c *child, args []string) (string, error) {
		d, err := time.ParseDuration(args[0])
		if err != nil {
			return "", err
		}
		for _, rdb := range c.clients {
			c.loops.Go(func() { _ = rdb.BLPop(context.Background(), d, "queue").Err() })
			for rdb.PoolStats().IdleConns > 0 || rdb.PoolStats().TotalConns == 0 {
				time.Sleep(time.Millisecond) // the pool does not tell
			}
		}
		return "", nil
	},
	// popping says how many connections the application has.
	"popping": func(c *child, _ []string) (string, error) {
		used := 0
		for _, rdb := range c.clients {
			used += int(rdb.PoolStats().TotalConns - rdb.PoolStats().IdleConns)
		}
		return fmt.Sprint(used), nil
	},
	// cutoff says that claims may have been given up, which Close says, too.
	"cutoff": func(c *child, _ []string) (string, error) {
		c.cutOff = true
		return "", nil
	},
	// close closes the clients.
	"close": func(c *child, _ []string) (string, error) {
		c.cutOff = true
		var errs []error
		for _, rdb := range c.clients {
			errs = append(errs, rdb.Close())
		}
		return "", errors.Join(errs...)
	},
	// cancelled KEY asks for the key with a context that has ended.
	"cancelled": func(c *child, args []string) (string, error) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := c.acquire(ctx, args[0]); !errors.Is(err, context.Canceled) || errors.Is(err, guard.ErrStore) {
			return "", fmt.Errorf("the answer was: %w", err)
		}
		return "", nil
	},
	// leave KEY panic|goexit|cancel leaves a run that way.
	"leave": func(c *child, args []string) (string, error) {
		ended := make(chan error)
		go func() {
			err := errors.New("the goroutine has ended")
			defer func() { ended <- err }()
			defer func() {
				if r := recover(); r != nil {
					err = fmt.Errorf("panic: %v", r)
				}
			}()
			err = c.run(args[0], args[1])
		}()
		return (<-ended).Error(), nil
	},
}

// run is a run of Do which ends in a way of its own.
func (c *child) run(key, how string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	since := history.Now()
	return c.guard.Do(ctx, key, func(ctx context.Context) error {
		lease, _ := guard.FromContext(ctx)
		h := &held{child: c, lease: lease, belief: c.log.Believe(lease, key, c.TTL, since)}
		// before the Guard releases it: the end of the context is noted beside that
		defer h.belief.End()
		if _, err := h.write(); err != nil {
			return err
		}
		switch how {
		case "panic":
			panic(how)
		case "goexit":
			runtime.Goexit()
		}
		cancel()
		return ctx.Err()
	}, guard.WithWait(calmLimit))
}

func emptyPool(s *scene) {
	w, other := s.worker(func(do *task) { do.Pool = 1 }), s.worker()
	s.keys["c"], s.keys["d"] = true, true
	w.ask("take d")
	other.ask("take c")
	w.ask("hold c")
	w.ask("write c")
	w.ask(fmt.Sprint("pop ", 5*ttl))
	nodes := fmt.Sprint(len(s.deployment.servers))
	require.Equal(s.t, nodes, w.ask("popping"))
	s.pass(3 * ttl)
	require.Equal(s.t, "true", w.ask("valid c"), "it is renewed")
	w.ask("take d")
	said, granted := other.try("hold c")
	require.False(s.t, granted, said)
	w.ask("release c")
	s.proven(w.ask("popping") == nodes, "BLPOP had the only connection of each of %s pools all the time", nodes)
}

func closedClient(s *scene) {
	w, other := s.warm()
	w.ask("hold c")
	w.ask("write c")
	w.ask("close")
	said, granted := w.try("hold d")
	require.False(s.t, granted)
	s.proven(true, "a claim was answered: %s", said)
	require.Contains(s.t, said, "closed", "I8")
	s.pass(3 * ttl)
	require.Equal(s.t, "true", w.ask("valid c"), "it is renewed by a connection of the Locker's own")
	said, granted = other.try("hold c")
	require.False(s.t, granted, said)
	if said, released := w.try("release c"); !released { // such a connection may be left
		require.Contains(s.t, said, "closed", "I8")
	}
	begun := time.Now()
	other.ask("take c")
	require.Less(s.t, time.Since(begun), 2*ttl, "it ends with its TTL")
	w.retired = true
}

func endings(s *scene) {
	w, other := s.warm()
	w.ask("cancelled c")
	for how, said := range map[string]string{"panic": "panic: panic", "goexit": "the goroutine has ended", "cancel": context.Canceled.Error()} {
		begun := time.Now()
		require.Equal(s.t, said, w.ask("leave c "+how), "unchanged")
		other.ask("take c")
		require.Less(s.t, time.Since(begun), ttl, "it is released at once")
	}
	s.proven(true, "a context that had ended, a panic, a Goexit, a cancel")
}
