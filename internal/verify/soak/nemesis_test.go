package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// outage is a fault of all stores that lasts long: for longer than a start deadline, mostly.
const outage = "all stores are away"

const shortestOutage, longestOutage = 5 * time.Second, 60 * time.Second

// A fault is something that befalls a site for some time.
type fault struct {
	name  string
	store int  // the one that it befalls
	place int  // the worker
	all   bool // the ways of all workers, and not of that one only
	lasts time.Duration
	rest  time.Duration // until the next one
}

func (f fault) String() string {
	return fmt.Sprintf("%s, store %d, worker %d, all %v, for %v, then %v", f.name, f.store, f.place, f.all, f.lasts, f.rest)
}

// deleteLease deletes what the backends keep of a key.
var deleteLease = redis.NewScript(`
for _, name in ipairs(redis.call('KEYS', '*:lease:' .. ARGV[1])) do redis.call('DEL', name) end
return redis.call('DEL', ARGV[1])`)

// faults are what befalls a site, by name.
var faults = map[string]func(*site, fault){
	"store freezes": func(s *site, f fault) {
		s.stores[f.store].Freeze()
		time.Sleep(f.lasts) // the fault
		s.stores[f.store].Thaw()
	},
	"store dies and comes back": func(s *site, f fault) {
		s.stores[f.store].Kill()
		time.Sleep(f.lasts) // the fault
		s.stores[f.store].Restart()
	},
	"store comes back empty": func(s *site, f fault) {
		s.lost("", func() {
			require.NoError(s.t, s.admins[f.store].FlushAll(context.Background()).Err())
			s.stores[f.store].Kill()
			time.Sleep(f.lasts) // the fault
			s.stores[f.store].Restart()
		})
	},
	"connections are cut": func(s *site, f fault) {
		for _, way := range s.waysOf(f) {
			way.Cut()
		}
		time.Sleep(f.lasts) // the next fault is to find them made again
	},
	"network is dark": func(s *site, f fault) {
		for _, way := range s.waysOf(f) {
			way.GoDark()
			defer way.Restore()
		}
		time.Sleep(f.lasts) // the fault
	},
	"replies are late": func(s *site, f fault) {
		for _, way := range s.waysOf(f) {
			way.Delay(f.lasts / 4)
			defer way.Restore()
		}
		time.Sleep(f.lasts) // the fault
	},
	"replies are lost": func(s *site, f fault) {
		for _, way := range s.waysOf(f) {
			way.DropReplies(5)
			defer way.Restore()
		}
		time.Sleep(f.lasts) // in which they are
	},
	"worker is paused": func(s *site, f fault) {
		s.mu.Lock()
		c := s.now[f.place]
		s.mu.Unlock()
		c.pause(s.t, 2*f.lasts) // sometimes for longer than a TTL
	},
	"worker is killed and replaced": func(s *site, f fault) { s.replaceWorker(f.place, f.lasts) },
	outage: func(s *site, f fault) {
		for _, store := range s.stores {
			store.Kill()
		}
		time.Sleep(f.lasts) // the fault
		for _, store := range s.stores {
			store.Restart()
		}
	},
	"scripts are forgotten": func(s *site, f fault) {
		require.NoError(s.t, s.admins[f.store].ScriptFlush(context.Background()).Err())
	},
	"key is deleted": func(s *site, f fault) {
		key := plainKeys[f.place%len(plainKeys)]
		s.lost(key, func() {
			require.NoError(s.t, deleteLease.Run(context.Background(), s.admins[f.store], nil, key).Err())
		})
	},
}

// faultNames are in an order that does not depend on the map.
var faultNames = []string{
	"store freezes", "store dies and comes back", "store comes back empty", "connections are cut", "network is dark", "replies are late", "replies are lost",
	"worker is paused", "worker is killed and replaced", "scripts are forgotten", "key is deleted", outage,
}

// schedule returns what befalls a site, by a seed: it has no end. Each fault comes once before any
// comes again.
func schedule(seed uint64, stores int) (next func() fault) {
	rng := rand.New(rand.NewPCG(seed, 0))
	var names []int
	return func() fault {
		if len(names) == 0 {
			names = rng.Perm(len(faultNames))
		}
		f := fault{
			name: faultNames[names[0]], store: rng.IntN(stores), place: rng.IntN(workers), all: rng.IntN(2) == 0,
			lasts: 300*time.Millisecond + time.Duration(rng.Int64N(int64(600*time.Millisecond))),
			rest:  200*time.Millisecond + time.Duration(rng.Int64N(int64(500*time.Millisecond))),
		}
		if long := longestOutage - shortestOutage; f.name == outage {
			f.lasts = shortestOutage + time.Duration(rng.Int64N(int64(long)))
		}
		names = names[1:]
		return f
	}
}

// waysOf returns the ways to a store that a fault is on.
func (s *site) waysOf(f fault) (ways []*redistest.Proxy) {
	for place := range s.ways {
		if f.all || place == f.place {
			ways = append(ways, s.ways[place][f.store])
		}
	}
	return ways
}

// befall has the faults come for some time, and returns how often each of them came. All of them
// are over then.
func (s *site) befall(seed uint64, d time.Duration) map[string]int {
	came := map[string]int{}
	next := schedule(seed, len(s.stores))
	for end := time.Now().Add(d); time.Now().Before(end); {
		f := next()
		if f.name == outage {
			f.lasts = max(shortestOutage, min(f.lasts, time.Until(end)))
		}
		came[f.name]++
		s.t.Logf("%d: %v", history.Now(), f)
		faults[f.name](s, f)
		time.Sleep(f.rest) // until the next fault
	}
	return came
}
