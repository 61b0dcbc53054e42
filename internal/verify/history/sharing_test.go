package history_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// sharedBy has random clients share a key of the store, and returns their calls and the answers.
func sharedBy(t *testing.T, store guard.Locker, clients, claims int) []history.SharedCall {
	t.Helper()
	var mu sync.Mutex
	var calls []history.SharedCall
	note := func(c history.SharedCall) {
		c.Return = history.Now()
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, c)
	}
	var all sync.WaitGroup
	for client := range clients {
		all.Go(func() {
			for n := range claims {
				among := []int{1, 2, 3, driver.Unlimited}[rand.IntN(4)]
				id := fmt.Sprintf("%d.%d", client, n)
				c := driver.Claim{Key: "k", ID: id, Owner: id, TTL: time.Hour, MaxHolders: among}
				call := history.SharedCall{Client: client, Claim: c.ID, MaxHolders: among}
				for range 1 + rand.IntN(2) {
					asked := call
					asked.Kind, asked.Outcome, asked.Call = history.Acquire, history.Busy, history.Now()
					grant, err := store.TryAcquire(context.Background(), c)
					if err == nil && grant.State == driver.Granted {
						asked.Outcome, asked.Fence = history.OK, grant.Fence
					}
					note(asked)
				}
				runtime.Gosched() // while others ask
				call.Kind, call.Outcome, call.Call = history.Release, history.NotHeld, history.Now()
				if held, err := store.Release(context.Background(), c, driver.After{}); err == nil && held {
					call.Outcome = history.OK
				}
				note(call)
			}
		})
	}
	all.Wait()
	return calls
}

func TestLinearizableShared_backendsAre(t *testing.T) {
	server := redistest.Start(t)
	onServer := func(name string) func() guard.Locker {
		return func() guard.Locker {
			rdb := server.Client(t)
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			return backends.On(name, rdb)
		}
	}
	for name, start := range map[string]func() guard.Locker{
		"memory":           func() guard.Locker { return memory.New() },
		backends.Single:    onServer(backends.Single),
		backends.Reentrant: onServer(backends.Reentrant),
	} {
		t.Run(name, func(t *testing.T) {
			outcomes := map[history.Outcome]int{}
			for range 20 {
				calls := sharedBy(t, start(), 8, 30)
				v := history.LinearizableShared(calls, 10*time.Second)
				require.True(t, v.OK(), "%v", v)
				for _, c := range calls {
					outcomes[c.Outcome]++
				}
			}
			require.Positive(t, outcomes[history.Busy])
			require.Positive(t, outcomes[history.OK])
		})
	}
}

// generous lets a key have one holder more than its claims allow.
type generous struct{ guard.Locker }

func (g generous) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	c.MaxHolders++
	runtime.Gosched() // so that claims meet
	return g.Locker.TryAcquire(ctx, c)
}

// deaf ignores the limits of the holders: they all seem to hold the key with any number.
type deaf struct{ guard.Locker }

func (d deaf) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if c.MaxHolders > 1 {
		c.MaxHolders = driver.Unlimited
	}
	return d.Locker.TryAcquire(ctx, c)
}

func TestLinearizableShared_brokenStoresAreNot(t *testing.T) {
	for name, broken := range map[string]func(guard.Locker) guard.Locker{
		"one holder too many":                func(l guard.Locker) guard.Locker { return generous{l} },
		"only alone is different from other": func(l guard.Locker) guard.Locker { return deaf{l} },
	} {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				v := history.LinearizableShared(sharedBy(t, broken(memory.New()), 8, 30), 10*time.Second)
				if v.String() == "ILLEGAL on a shared key" {
					return
				}
			}
			require.Fail(t, "it was not found out")
		})
	}
}

func TestLinearizableShared_histories(t *testing.T) {
	took := func(claim string, among int, at int64, outcome history.Outcome, fence uint64) history.SharedCall {
		return history.SharedCall{Kind: history.Acquire, Claim: claim, MaxHolders: among, Call: at, Return: at + 1, Outcome: outcome, Fence: fence}
	}
	left := func(claim string, at int64, outcome history.Outcome) history.SharedCall {
		return history.SharedCall{Kind: history.Release, Claim: claim, Call: at, Return: at + 1, Outcome: outcome}
	}
	for name, c := range map[string]struct {
		calls []history.SharedCall
		legal bool
	}{
		"readers, then a writer": {[]history.SharedCall{
			took("a", driver.Unlimited, 0, ok, 1), took("b", driver.Unlimited, 2, ok, 2), took("w", 1, 4, busy, 0),
			left("a", 6, ok), left("b", 8, ok), took("w", 1, 10, ok, 3),
		}, true},
		"the smallest limit of the holders counts": {[]history.SharedCall{took("a", 2, 0, ok, 1), took("b", 3, 2, ok, 2), took("c", 5, 4, busy, 0)}, true},
		"it does not count":                        {[]history.SharedCall{took("a", 2, 0, ok, 1), took("b", 3, 2, ok, 2), took("c", 5, 4, ok, 3)}, false},
		"a writer beside a reader":                 {[]history.SharedCall{took("a", driver.Unlimited, 0, ok, 1), took("w", 1, 2, ok, 2)}, false},
		"refused for no reason":                    {[]history.SharedCall{took("a", 3, 0, ok, 1), took("b", 3, 2, busy, 0)}, false},
		"a repeated claim counts once":             {[]history.SharedCall{took("a", 2, 0, ok, 1), took("a", 2, 2, ok, 1), took("b", 2, 4, ok, 2)}, true},
		"a repeated claim has another fence":       {[]history.SharedCall{took("a", 2, 0, ok, 1), took("a", 2, 2, ok, 2)}, false},
		"two readers have one fence":               {[]history.SharedCall{took("a", 2, 0, ok, 1), took("b", 2, 2, ok, 1)}, false},
		"a release of what is not held":            {[]history.SharedCall{left("a", 0, ok)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.legal, history.LinearizableShared(c.calls, time.Second).OK())
		})
	}
}
