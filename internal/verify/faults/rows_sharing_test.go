package faults_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

// Faults of processes that share a key, or hold several. Their leases are not noted in the history,
// which is one of leases that are alone.
var sharingRows = []row{
	{number: 28, name: "readers killed and paused while a writer waits", backends: everyone, ci: []string{"redlock"}, run: faultyReaders},
	{number: 29, name: "a writer killed while it waits for readers", backends: everyone, ci: []string{"single"}, run: killedWriter},
	{number: 30, name: "one of three holders paused past its TTL, and one killed", backends: one, ci: []string{"reentrant"}, run: faultyHolders},
	{number: 31, name: "the server frozen, and killed, under readers and a writer", backends: one, window: true, forgets: true, run: serverUnderReaders},
	{number: 32, name: "a holder of several keys killed, and one paused", backends: everyone, run: faultyHolderOfSeveral},
}

// A sharing is a lease of a worker beside others, or on several keys.
type sharing struct {
	ctx     context.Context
	release func(context.Context) error
}

// sharingGuard returns a Guard whose leases are not noted.
func (c *child) sharingGuard() (*guard.Guard, error) {
	if c.shares == nil {
		g, err := guard.New(c.locker(), guard.WithTTL(c.TTL))
		if err != nil {
			return nil, err
		}
		c.shares, c.sharings = g, map[string]sharing{}
	}
	return c.shares, nil
}

var sharingCommands = map[string]command{
	// share NAME KEY AMONG WAIT takes the key among so many, or any; the answer is the fence and
	// the seat.
	"share": func(c *child, args []string) (string, error) {
		g, err := c.sharingGuard()
		if err != nil {
			return "", err
		}
		among := guard.WithShared()
		if n, err := strconv.Atoi(args[2]); err == nil {
			among = guard.WithLimit(n)
		}
		wait, _ := time.ParseDuration(args[3])
		lease, err := g.Acquire(context.Background(), args[1], among, guard.WithWait(wait))
		if err != nil {
			return "", c.typed(err)
		}
		c.sharings[args[0]] = sharing{lease.Context(), lease.Release}
		return fmt.Sprint(lease.Fence(), " ", lease.Seat()), nil
	},
	// all NAME KEY,KEY WAIT takes several keys; the answer is the fence.
	"all": func(c *child, args []string) (string, error) {
		g, err := c.sharingGuard()
		if err != nil {
			return "", err
		}
		wait, _ := time.ParseDuration(args[2])
		l, err := g.AcquireAll(context.Background(), strings.Split(args[1], ","), guard.WithWait(wait))
		if err != nil {
			return "", c.typed(err)
		}
		c.sharings[args[0]] = sharing{l.Context(), l.Release}
		return fmt.Sprint(l.Fence()), nil
	},
	// unshare NAME releases it.
	"unshare": func(c *child, args []string) (string, error) {
		return "", c.typed(c.sharings[args[0]].release(context.Background()))
	},
	// deprived NAME LIMIT waits until the lease is lost.
	"deprived": func(c *child, args []string) (string, error) {
		limit, _ := time.ParseDuration(args[1])
		ctx := c.sharings[args[0]].ctx
		select {
		case <-ctx.Done():
		case <-time.After(limit):
			return "", fmt.Errorf("the lease is still believed in after %v", limit)
		}
		if cause := context.Cause(ctx); !errors.Is(cause, guard.ErrLost) {
			return "", fmt.Errorf("the lease has ended with %w", cause)
		}
		return "", nil
	},
}

// shares sends a "share" and returns its answer.
func (w *worker) shares(line string) (fence uint64, seat int) {
	w.t.Helper()
	w.Tell("share " + line)
	return w.shared()
}

// shared returns the answer to a "share" that was sent.
func (w *worker) shared() (fence uint64, seat int) {
	w.t.Helper()
	_, err := fmt.Sscan(w.reply(), &fence, &seat)
	require.NoError(w.t, err)
	return fence, seat
}

func faultyReaders(s *scene) {
	s.loop(1)
	writer, dies, sleeps := s.worker(), s.worker(), s.worker()
	dies.shares("r shared any 0s")
	fence, _ := sleeps.shares("r shared any 0s")
	begun := time.Now()
	dies.Kill()
	require.NoError(s.t, sleeps.Freeze())
	writer.Tell("share w shared 1 20s")
	last, _ := writer.shared()
	s.proven(time.Since(begun) > ttl/2, "the writer has waited for %v", time.Since(begun).Round(time.Millisecond))
	require.Less(s.t, time.Since(begun), 3*ttl, "it waits for no more than their leases")
	require.Greater(s.t, last, fence)
	require.NoError(s.t, sleeps.Thaw())
	sleeps.ask("deprived r 5s")
	_, ok := sleeps.try("unshare r")
	require.False(s.t, ok)
	_, ok = sleeps.try("share again shared any 0s")
	require.False(s.t, ok, "the writer has the key alone")
	writer.ask("unshare w")
	sleeps.shares("again shared any 0s")
	sleeps.ask("unshare again")
}

func killedWriter(s *scene) {
	s.loop(1)
	reader, late, writer := s.worker(), s.worker(), s.worker()
	reader.shares("r shared any 0s")
	writer.Tell("share w shared 1 20s")
	require.Eventually(s.t, func() bool { // the writer waits
		_, ok := late.try("share r shared any 0s")
		if ok {
			late.ask("unshare r")
		}
		return !ok
	}, 5*time.Second, time.Millisecond)
	writer.Kill()
	begun := time.Now()
	late.shares("r shared any 20s")
	s.proven(true, "the writer was killed while it kept a reader out")
	require.Less(s.t, time.Since(begun), 2*ttl, "it keeps readers out for 0.6 TTL")
	late.ask("unshare r")
	reader.try("unshare r") // on a machine that has stalled, it has lost its lease by now
}

func faultyHolders(s *scene) {
	s.loop(1)
	holders := []*worker{s.worker(), s.worker(), s.worker()}
	next := []*worker{s.worker(), s.worker()}
	fences := map[int]uint64{}
	for i, w := range holders {
		// On a slow machine, a first claim on five servers can take longer than a TTL. The wait
		// lets it be repeated.
		fence, seat := w.shares("h shared 3 5s")
		require.Equal(s.t, i+1, seat)
		fences[seat] = fence
	}
	_, ok := next[0].try("share h shared 3 0s")
	require.False(s.t, ok, "a fourth")
	paused, killed, stays := holders[0], holders[1], holders[2]
	begun := time.Now()
	require.NoError(s.t, paused.Freeze())
	killed.Kill()
	for _, w := range next {
		w.Tell("share h shared 3 20s")
	}
	seats := map[int]bool{}
	for _, w := range next {
		fence, seat := w.shared()
		require.Greater(s.t, fence, fences[seat], "the fence of seat %d", seat)
		seats[seat] = true
	}
	require.Equal(s.t, map[int]bool{1: true, 2: true}, seats)
	s.proven(time.Since(begun) > ttl/2, "two have waited for %v", time.Since(begun).Round(time.Millisecond))
	require.NoError(s.t, paused.Thaw())
	paused.ask("deprived h 5s")
	_, ok = paused.try("unshare h")
	require.False(s.t, ok)
	_, ok = paused.try("share again shared 3 0s")
	require.False(s.t, ok, "there are three")
	for _, w := range append(next, stays) {
		w.ask("unshare h")
	}
	paused.shares("again shared 3 0s")
	paused.ask("unshare again")
}

func serverUnderReaders(s *scene) {
	s.loop(1)
	readers, writer := []*worker{s.worker(), s.worker()}, s.worker()
	for _, w := range readers {
		w.shares("r shared any 0s")
	}
	server := s.deployment.servers[0]
	server.Freeze()
	s.pass(2 * ttl)
	server.Thaw()
	for _, w := range readers {
		w.ask("deprived r 5s")
		_, _ = w.try("unshare r")
	}
	writer.shares("w shared 1 20s")
	writer.ask("unshare w")
	for _, w := range readers {
		w.shares("r shared any 20s")
	}
	server.Kill()
	server.Restart()
	s.proven(true, "the server was frozen for two TTLs, and killed")
	for _, w := range readers {
		w.ask("deprived r 5s")
		_, _ = w.try("unshare r")
	}
	writer.shares("w shared 1 20s")
	_, ok := readers[0].try("share r shared any 0s")
	require.False(s.t, ok)
	writer.ask("unshare w")
}

func faultyHolderOfSeveral(s *scene) {
	s.loop(1)
	dies, sleeps, next := s.worker(), s.worker(), s.worker()
	dies.ask("all h k1,k2,k3 0s")
	dies.Kill()
	sleeps.Tell("all h k3,k1,k4 20s")
	fence := sleeps.reply()
	require.NoError(s.t, sleeps.Freeze())
	begun := time.Now()
	next.Tell("all h k2,k4,k3 20s")
	last := next.reply()
	s.proven(time.Since(begun) > ttl/3, "the next has waited for %v", time.Since(begun).Round(time.Millisecond))
	require.NoError(s.t, sleeps.Thaw())
	sleeps.ask("deprived h 5s")
	_, ok := sleeps.try("unshare h")
	require.False(s.t, ok)
	older, err := strconv.ParseUint(fence, 10, 64)
	require.NoError(s.t, err)
	newer, err := strconv.ParseUint(last, 10, 64)
	require.NoError(s.t, err)
	require.Greater(s.t, newer, older)
	_, ok = sleeps.try("all h k1,k2 0s")
	require.False(s.t, ok, "k2 is held")
	sleeps.ask("all h k1 5s")
	sleeps.ask("unshare h")
	next.ask("unshare h")
}
