package guard

import (
	cryptorand "crypto/rand"
	"math/rand/v2"
	"sync"
	"time"
)

// dice are a Guard's random numbers: those of its pauses. They are seeded from crypto/rand, so that a test
// which fixes that (testing/cryptotest) has every pause fixed with it; the functions of math/rand/v2 cannot be.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func newDice() *dice {
	var seed [32]byte
	_, _ = cryptorand.Read(seed[:]) // never fails
	return &dice{rng: rand.New(rand.NewChaCha8(seed))}
}

// upTo returns a random duration from 0 to most, which is not negative.
func (d *dice) upTo(most time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.Int64N(int64(most) + 1))
}

// backoff is base, doubled with each further try up to longest, of which a random half is taken off.
func (d *dice) backoff(base, longest time.Duration, try int) time.Duration {
	pause := base
	for i := 1; i < try && pause < longest; i++ {
		pause *= 2
	}
	pause = min(pause, longest)
	return pause/2 + d.upTo(pause/2)
}
