package guardtest

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A census is the claims that certainly hold a key: after the answer to the acquire, and before
// the request to release.
type census struct {
	mu      sync.Mutex
	holders map[string]int // MaxHolders by ID
	granted int
	shared  int // grants beside others
	wrong   []string
}

func (c *census) enter(claim driver.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders[claim.ID] = max(claim.MaxHolders, 1)
	most := driver.Unlimited
	for _, maxHolders := range c.holders {
		most = min(most, maxHolders)
	}
	if len(c.holders) > most {
		c.wrong = append(c.wrong, strconv.Itoa(len(c.holders))+" hold a key that one of them shares with "+strconv.Itoa(most-1)+" others")
	}
	c.granted++
	if len(c.holders) > 1 {
		c.shared++
	}
}

func (c *census) leave(claim driver.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.holders, claim.ID)
}

// sawShares reports whether the key has been shared.
func (c *census) sawShares() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shared > 0
}

func randomSharers(s *subject) {
	seed := s.seed()
	keys := [2]census{{holders: map[string]int{}}, {holders: map[string]int{}}}
	goesOn := s.during(func() bool { return keys[0].sawShares() && keys[1].sawShares() })
	s.work(seed, goesOn, func(p process, random *rand.Rand) {
		k := random.IntN(len(keys))
		s.shareOnce(p, random, "shared:"+strconv.Itoa(k), &keys[k])
	})
	for i := range keys {
		require.Empty(s, keys[i].wrong)
		require.Positive(s, keys[i].granted, "no claim was granted")
		require.Positive(s, keys[i].shared, "no key was shared")
	}
}

// shareOnce makes a random claim of the key, and holds it for a moment if it is granted.
func (s *subject) shareOnce(p process, random *rand.Rand, k string, census *census) {
	c := s.shared(k, append([]int{1}, s.backend.Shares...)[random.IntN(len(s.backend.Shares)+1)])
	if random.IntN(4) == 0 {
		c.Queue = driver.Retried
	}
	g, err := p.tryAcquire(c)
	if err == nil && g.State == driver.Granted {
		census.enter(c)
	}
	// A slow store needs a longer hold, or no two claims share the key.
	time.Sleep(time.Duration(random.Int64N(int64(max(time.Millisecond, s.backend.MinTTL)))))
	if err == nil && g.State == driver.Granted {
		census.leave(c)
	}
	c.Repeated = err != nil || g.State != driver.Granted
	_, _ = p.tryRelease(c, driver.After{})
}
