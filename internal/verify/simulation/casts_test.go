package simulation_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

// A cast is what the workers of a world do beside plain leases. Each has its share of the seeds,
// under each mix of faults.
type cast string

const (
	// leases is nothing but leases.
	leases cast = "leases"
	// markers is work that runs once in a window, and minimum holds.
	markers cast = "markers"
	// queues is many waiters in each process, some of which leave.
	queues cast = "queues"
	// pauses is processes that are stopped for longer than a TTL, and hosts that are suspended.
	pauses cast = "pauses"
	// adapters is HTTP requests, asynq's tasks and cron's ticks.
	adapters cast = "adapters"
)

var casts = []cast{leases, markers, queues, pauses, adapters}

const (
	// readers is readers and writers of a key.
	readers cast = "readers"
	// limits is up to so many holders of a key, on whose number processes do not agree.
	limits cast = "limits"
	// several is calls for several keys at once, alone or not.
	several cast = "several"
)

var sharingCasts = []cast{readers, limits, several}

// act is one turn of a worker.
func (k *worker) act() {
	special := map[cast][]func(){
		markers:  {k.once, k.onceInACrowd, k.holdLong},
		queues:   {k.queue},
		adapters: {k.request, k.request, k.task},
		readers:  {k.job, k.job, k.crowd, k.upgrade},
		several:  {k.all, k.all, k.around, k.upgrade},
	}[k.world.cast]
	switch {
	case len(special) > 0 && chance(k.rng, 0.6):
		special[k.rng.IntN(len(special))]()
	case chance(k.rng, 0.1):
		k.crowd()
	default:
		k.job()
	}
}

// another returns a worker of the same process with random numbers of its own.
func (k *worker) another(i int) *worker {
	return &worker{fmt.Sprintf("%s.%d", k.name, i), k.process, k.world, rand.New(rand.NewPCG(k.rng.Uint64(), 0))}
}

// ttl returns a TTL.
func (k *worker) ttl() guard.Option {
	return guard.WithTTL(guard.MinTTL + upTo(k.rng, longestTTL-guard.MinTTL))
}

// step is a point between two actions of a worker at which it can be stopped.
func (k *worker) step() {
	if k.world.pauses() {
		time.Sleep(upTo(k.rng, time.Millisecond))
		k.process.step(k.name)
	}
}

// typed checks I8: the caller can tell the kind of each error.
func (k *worker) typed(key string, err error) {
	switch {
	case err == nil, errors.Is(err, errWork), isContextError(err):
	case errors.Is(err, guard.ErrBusy), errors.Is(err, guard.ErrDone), errors.Is(err, guard.ErrLost):
	case errors.Is(err, guard.ErrStore), errors.Is(err, guard.ErrMarker):
	case errors.Is(err, guard.ErrClosed) && k.world.nodes != nil: // the process has crashed
	default:
		k.world.violate("I8", "%s gets an error of no known kind for %s: %v", k.name, key, err)
	}
}
