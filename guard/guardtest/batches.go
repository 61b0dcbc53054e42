package guardtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard/driver"
)

func batchChecks() []check {
	return []check{
		{name: "a batch of renewals reports on each claim", run: renewsBatch},
		{name: "a batch whose context has ended reports an error for each claim", run: failsBatch},
		{name: "an empty batch reports nothing", run: emptyBatch},
		{name: "a batch of claims is answered one by one", run: acquiresBatch},
		{name: "a batch of claims whose context has ended reports an error for each", run: failsBatchOfClaims},
	}
}

// An answer is one answer to a claim in a batch.
type answer struct {
	driver.Answer
	err error
}

// A batch is a call of driver.Async, with the answers to it.
type batch struct {
	mu      sync.Mutex
	answers map[int][]answer
}

// start starts a call for each of the claims, and returns when each has an answer. If the Locker is
// no driver.Async, it makes each call in a goroutine.
func (s *subject) start(ctx context.Context, op driver.Op, claims []driver.Claim) *batch {
	s.Helper()
	b := &batch{answers: map[int][]answer{}}
	driver.AsyncOf(s.here.locker).Start(ctx, op, claims, driver.After{}, func(i int, a driver.Answer, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers[i] = append(b.answers[i], answer{a, err})
	})
	s.eventually(func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.answers) >= len(claims)
	}, "each claim of the batch is answered")
	return b
}

// answer returns the only answer to the i-th claim.
func (b *batch) answer(s *subject, i int) answer {
	s.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(s, b.answers[i], 1, "the claim at index %d needs exactly one answer", i)
	return b.answers[i][0]
}

// settled checks that exactly n claims were answered, each once.
func (b *batch) settled(s *subject, n int) {
	s.Helper()
	time.Sleep(4 * early) // a wrong answer may come late
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(s, b.answers, n, "the number of claims that were answered")
	for i, all := range b.answers {
		require.Len(s, all, 1, "the claim at index %d needs exactly one answer", i)
	}
}

// The kinds of claims in a batch. The claims have these kinds in turn.
const (
	held     = iota
	raised   // held, and renewed with a higher fence
	released // released before the renewal
	another  // the key is held by another claim
	unknown  // never acquired
	turns
)

func renewsBatch(s *subject) {
	const n = 250
	claims := make([]driver.Claim, n)
	for i := range claims {
		c := s.claim(fmt.Sprintf("key:%d", i))
		switch i % turns {
		case held, raised:
			c.Fence = s.here.mustAcquire(c).Fence
		case released:
			s.here.mustAcquire(c)
			s.here.mustRelease(c, driver.After{})
		case another:
			s.there.mustAcquire(s.claim(c.Key))
		}
		if i%turns == raised {
			c.Fence += ahead
		}
		c.TTL = 2 * long
		claims[i] = c
	}
	ctx, cancel := s.here.context()
	defer cancel()
	b := s.start(ctx, driver.OpRenew, claims)
	for i, c := range claims {
		got := b.answer(s, i)
		require.NoError(s, got.err)
		require.Equal(s, i%turns == held || i%turns == raised, got.Held, "whether the claim at index %d is held", i)
		g := s.there.acquire(s.claim(c.Key))
		switch i % turns {
		case held, raised:
			require.Equal(s, driver.Busy, g.State)
			require.Greater(s, g.Left, long)
			require.Equal(s, c.Fence, s.here.mustAcquire(c).Fence, "the fence after the renewal")
		case another:
			require.Equal(s, driver.Busy, g.State)
			require.LessOrEqual(s, g.Left, long)
		default:
			require.Equal(s, driver.Granted, g.State)
		}
	}
	b.settled(s, n)
}

func failsBatch(s *subject) {
	claims := make([]driver.Claim, 5)
	for i := range claims {
		claims[i] = s.claim(fmt.Sprintf("key:%d", i))
		s.here.mustAcquire(claims[i])
		claims[i].TTL = 2 * long
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	b := s.start(ctx, driver.OpRenew, claims)
	for i, c := range claims {
		s.storeError(b.answer(s, i).err, driver.OpRenew, c.Key)
		s.there.requireBusy(s.claim(c.Key), long)
	}
	b.settled(s, len(claims))
}

func emptyBatch(s *subject) {
	s.start(s.Context(), driver.OpRenew, nil).settled(s, 0)
}

// acquiresBatch makes a batch of claims, and releases them.
func acquiresBatch(s *subject) {
	const n = 10
	taken := s.claim("batch 3")
	s.there.mustAcquire(taken)
	done := s.claim("batch 7")
	s.there.mustAcquire(done)
	s.there.mustRelease(done, driver.After{Keep: long, Done: true, Record: []byte("record")})
	claims := make([]driver.Claim, n)
	for i := range claims {
		claims[i] = s.claim(fmt.Sprint("batch ", i))
	}
	ctx, cancel := s.here.context()
	defer cancel()
	for _, again := range []bool{false, true} {
		b := s.start(ctx, driver.OpAcquire, claims)
		s.here.settled(s)
		for i := range claims {
			g := b.answer(s, i)
			require.NoError(s, g.err)
			switch i {
			case 3:
				require.Equal(s, driver.Busy, g.State)
				require.Equal(s, taken.Label, g.Label)
			case 7:
				require.Equal(s, driver.Done, g.State)
				require.Equal(s, "record", string(g.Record))
			default:
				require.Equal(s, driver.Granted, g.State)
				require.Equal(s, again, g.Held)
				require.Positive(s, g.Fence)
			}
		}
	}
	for _, again := range []bool{false, true} {
		b := s.start(ctx, driver.OpRelease, claims)
		s.here.settled(s)
		for i := range claims {
			got := b.answer(s, i)
			require.NoError(s, got.err)
			require.Equal(s, !again && i != 3 && i != 7, got.Held, "index %d", i)
		}
	}
	s.there.mustAcquire(s.claim("batch 0"))
	require.True(s, s.there.renew(taken))
}

func failsBatchOfClaims(s *subject) {
	ctx, cancel := s.here.context()
	cancel()
	claims := []driver.Claim{s.claim("a"), s.claim("b")}
	for _, op := range []driver.Op{driver.OpAcquire, driver.OpRelease} {
		b := s.start(ctx, op, claims)
		for i := range claims {
			require.Error(s, b.answer(s, i).err)
		}
	}
}
