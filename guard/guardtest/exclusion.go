package guardtest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func exclusionChecks() []check {
	return []check{
		{name: "random workers never hold a key at the same time", run: randomWorkers},
		{name: "no update made under a lease is lost", run: updates},
	}
}

const (
	fuzzWorkers = 8
	fuzzKeys    = 3
	// seedEnv is the environment variable with the seed of a run that is to be repeated.
	seedEnv = "GUARDTEST_SEED"
)

// span is how long a random run lasts. A slow store needs a longer one.
func (s *subject) span() time.Duration {
	if testing.Short() {
		return 200 * time.Millisecond
	}
	return max(600*time.Millisecond, 6*s.backend.MinTTL)
}

// during returns a function that reports whether a random run goes on. It goes on for span, and
// then until everything it requires has happened, which takes longer on a slow machine, but not
// longer than ten times span.
func (s *subject) during(happened func() bool) func() bool {
	begin := time.Now()
	return func() bool {
		took := time.Since(begin)
		return took < s.span() || took < 10*s.span() && !happened()
	}
}

// seed returns the seed of a run, and logs it if the check fails.
func (s *subject) seed() uint64 {
	seed := rand.Uint64()
	if v := os.Getenv(seedEnv); v != "" {
		var err error
		seed, err = strconv.ParseUint(v, 10, 64)
		require.NoError(s, err, seedEnv)
	}
	s.Cleanup(func() {
		if s.Failed() {
			s.Logf("to use the same random numbers again, set %s=%d", seedEnv, seed)
		}
	})
	return seed
}

// source returns the random number generator of a worker.
func source(seed uint64, worker int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(worker))) //nolint:gosec // it must be repeatable
}

// randomWorkers runs workers that use leases at random. They also renew and release leases that
// have ended, and claims that they never made. A referee checks the answers. It objects only to
// answers that no delay can explain.
func randomWorkers(s *subject) {
	r := newReferee(s.late())
	seed := s.seed()
	goesOn := s.during(r.sawEachKey)
	var all sync.WaitGroup
	for i := range fuzzWorkers {
		w := &worker{subject: s, referee: r, random: source(seed, i), leases: map[string]*tenure{}, goesOn: goesOn}
		all.Go(w.work)
	}
	all.Wait()
	r.verdict(s)
}

// work has workers in both processes call do, as long as goesOn says. Each worker has random
// numbers of its own.
func (s *subject) work(seed uint64, goesOn func() bool, do func(process, *rand.Rand)) {
	var all sync.WaitGroup
	for i := range fuzzWorkers {
		random := source(seed, i)
		p := []process{s.here, s.there}[i%2]
		all.Go(func() {
			for goesOn() {
				do(p, random)
			}
		})
	}
	all.Wait()
}

// releaseSurely releases c until the store answers, as the Guard does, or until goesOn says no.
func (p process) releaseSurely(c driver.Claim, goesOn func() bool) {
	for goesOn() {
		if _, err := p.tryRelease(c, driver.After{}); err == nil {
			return
		}
	}
}

// updates runs workers that increment numbers. Each worker reads and writes a number in two steps,
// under a lease that does not expire. ShedLock checks its lock providers in the same way.
func updates(s *subject) {
	seed := s.seed()
	var numbers, made [2]atomic.Int64
	var refused atomic.Int64
	goesOn := s.during(func() bool { return made[0].Load() > 0 && made[1].Load() > 0 })
	s.work(seed, goesOn, func(p process, random *rand.Rand) {
		k := random.IntN(len(numbers))
		c := s.claim("number:" + strconv.Itoa(k))
		g, err := p.tryAcquire(c)
		if err != nil {
			p.releaseSurely(c, goesOn) // it may have been granted
		}
		if err != nil || g.State != driver.Granted {
			time.Sleep(time.Duration(random.IntN(1000)) * time.Microsecond)
			return
		}
		read := numbers[k].Load()
		time.Sleep(time.Duration(random.IntN(300)) * time.Microsecond)
		numbers[k].Store(read + 1)
		made[k].Add(1)
		held, err := p.tryRelease(c, driver.After{})
		if err == nil && !held {
			refused.Add(1)
		}
		if err != nil {
			p.releaseSurely(c, goesOn)
		}
	})
	for k := range numbers {
		require.Positive(s, made[k].Load(), "no claim was granted")
		require.Equal(s, made[k].Load(), numbers[k].Load(), "updates were lost: two workers held the key at the same time")
	}
	require.Zero(s, refused.Load(), "the number of releases by the holder that were refused")
}
