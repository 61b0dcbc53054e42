package simulation_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/seed-1795987d/onerun/guard"
)

const (
	processes = 3
	workers   = 2 // of each process
	chaos     = time.Second
)

var keys = []string{"k0", "k1"}

// A world is one run of the simulation.
type world struct {
	backend backend
	mutate  mutation
	seed    uint64
	mix     mix
	cast    cast
	loss    float64 // the share of messages that are lost
	slow    float64 // the share of messages that take long
	// service is how long a server takes for a request, or 0 if nothing is measured, but checked.
	service  time.Duration
	requests atomic.Int64 // that servers have carried out

	start     time.Time
	servers   []*server
	nodes     []*node // in place of servers
	processes []*process
	carriers  atomic.Int64 // goroutines of connections
	beliefs   beliefs
	resource  resource
	spans     *spans
	together  atomic.Int64 // runs of what all do together at the end
	// keys of ticks that were skipped
	skippedTicks sync.Map
	trace        trace
	tally        *tally
	setBack      time.Duration // how far clocks have been set back
	lastLoss     instant       // when a server has last lost something
	asleep       atomic.Int64  // for how long the hosts of processes were suspended

	mu          sync.Mutex
	suspensions []suspension
	claims      map[string]string // keys of requests, as Guards know them
	violations  []violation
}

// A mutation breaks something. The zero one is what we sell.
type mutation struct {
	store  func(inner guard.Locker, p *process) guard.Locker // what the store does
	script *patch                                            // what its scripts do
	asks   func(inner guard.Locker, p *process) guard.Locker // what a Guard asks of it
	do     func(inner doer) doer                             // how a Guard runs things
	// a Guard does not see that its host was suspended
	awake   bool
	unfence bool // the resource takes any fence
}

// A patch puts a text in place of another one in the scripts that reach a server.
type patch struct{ of, by string }

// Replace returns the request with its scripts patched. The request says how long they are, so
// their length stays the same.
func (p patch) Replace(request []byte) []byte {
	by := fmt.Sprintf("%-*s", len(p.of), p.by)
	if len(by) != len(p.of) {
		panic("longer than what it replaces: " + p.by)
	}
	return bytes.ReplaceAll(request, []byte(p.of), []byte(by))
}

// A doer is Guard.Do.
type doer func(ctx context.Context, key string, f func(context.Context) error, opts ...guard.Option) error

// A violation is an invariant of the fault plan that was broken.
type violation struct{ invariant, text string }

// simulate runs the world of a seed in a bubble of its own. A goroutine that is left over fails
// the bubble: I5.
func simulate(t *testing.T, b backend, mutate mutation, seed uint64, counts *tally) *world {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed) // claims' IDs, and the pauses of Guards
	w := &world{backend: b, mutate: mutate, seed: seed, tally: counts}
	w.mix, w.cast = b.lot(seed)
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

// lot returns the mix of faults and the cast of the world of a seed.
func (b backend) lot(seed uint64) (mix, cast) {
	return mixes[seed%uint64(len(mixes))], b.casts[seed/uint64(len(mixes))%uint64(len(b.casts))]
}

func (w *world) run() {
	w.start = time.Now()
	rng := w.rng("world")
	w.loss, w.slow = 0.08*rng.Float64(), 0.1*rng.Float64()
	w.beliefs = beliefs{world: w, claims: map[string]*claim{}, asked: map[string]time.Time{}, owners: map[string]*claim{}, of: map[string][]*belief{}, kept: map[string][]*claim{}, seats: map[string]*belief{}, fences: map[string][]fences{}}
	w.resource = resource{world: w, highest: map[string]*belief{}, alone: map[string]*belief{}}
	w.spans, w.claims = newSpans(w), map[string]string{}
	for i := range w.backend.servers {
		w.servers = append(w.servers, newServer(w, i))
	}
	nemesis := w.nemesis
	if w.backend.servers == 0 {
		for i := range w.backend.nodes {
			w.nodes = append(w.nodes, newNode(w, i))
		}
		nemesis = w.disturb
	}
	for i := range processes {
		w.processes = append(w.processes, newProcess(w, i))
	}

	var crew []*worker
	for _, p := range w.processes {
		for i := range workers {
			crew = append(crew, newWorker(p, i))
		}
	}
	var all sync.WaitGroup
	all.Go(nemesis)
	var ticks sync.WaitGroup
	for _, p := range w.processes {
		if p.site.ticker != nil {
			ticks.Go(p.site.ticker.loop)
		}
	}
	for _, k := range crew {
		all.Go(k.loop)
	}
	all.Wait()
	for _, k := range crew {
		all.Go(k.visit)
	}
	all.Wait()
	w.finale(crew)
	ticks.Wait()
	if last := tickKey(w.lastTick()); w.cast == adapters && !w.spans.was(last) && !w.wasLate(w.lastTick()) {
		w.violate("I9", "nobody has run %s, when all was well", last)
	}
	w.close()
}

// finale has all do something together, now that all is well.
func (w *world) finale(crew []*worker) {
	last := map[cast]func(*worker){
		markers:  (*worker).doTogether,
		queues:   (*worker).queueAfterFaults,
		adapters: (*worker).finishAll,
		readers:  (*worker).shareAll,
		limits:   (*worker).shareAll,
		several:  (*worker).shareAll,
	}[w.cast]
	if last == nil {
		return
	}
	var all sync.WaitGroup
	for _, k := range crew {
		all.Go(func() { last(k) })
	}
	all.Wait()
	if w.nodes != nil {
		w.flow(crew)
		w.allOrNone(crew)
		w.noTrace(crew)
	}
	if n := w.together.Load(); w.cast == markers && n != 1 {
		w.violate("once", "%d have done what all were to do together, once", n)
	}
}

// isQuorum reports whether a majority of several nodes grants leases.
func (w *world) isQuorum() bool { return w.backend.nodes > 1 }

// close ends everything and checks that it has ended.
func (w *world) close() {
	for _, p := range w.processes {
		p.close()
	}
	w.beliefs.over()
	if w.nodes != nil && !w.isQuorum() {
		w.nodes[0].isFree()
	}
	time.Sleep(5 * time.Second) // longer than a message can be on its way
	if w.isQuorum() {           // which releases in the background what came late
		for _, n := range w.nodes {
			n.isFree()
		}
	}
	if n := w.carriers.Load(); n > 0 {
		w.violate("I5", "connections are left: %d goroutines of them", n)
	}
	for _, s := range w.servers {
		s.close()
	}
}

// calm reports whether no more faults begin.
func (w *world) calm() bool { return time.Since(w.start) > chaos }

// settled is how long a worker may have to wait for a key after the last fault: for what was
// delayed, for a lease that its holder could not release, for what that lease left, and for the
// runs of other workers.
func (w *world) settled() time.Duration {
	return 3*longestTTL + longestTTL + longestStop + longestKeep + w.setBack + 3*time.Second
}

// rng returns the random numbers of one actor.
func (w *world) rng(actor string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(actor)) // never fails
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// forgottenSince reports whether a server has lost something since an instant, or at it.
func (w *world) forgottenSince(at time.Time) bool { return !w.lastLoss.get().Before(at) }

// disturbedSince reports whether something has ended early since an instant, or at it, by the
// clock of a process.
func (w *world) disturbedSince(at time.Time) bool {
	return w.forgottenSince(at) || w.sleptSince(at) > 0
}

func (w *world) violate(invariant, format string, args ...any) {
	v := violation{invariant, fmt.Sprintf(format, args...)}
	w.trace.add("%s IS BROKEN: %s", v.invariant, v.text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violations = append(w.violations, v)
}

func (v violation) String() string { return v.invariant + ": " + v.text }
