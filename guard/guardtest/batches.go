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

// An answer is one report on a claim in a batch.
type answer struct {
	held bool
	err  error
}

// A batch is a call of RenewBatch, with what the call has reported.
type batch struct {
	mu       sync.Mutex
	answers  map[int][]answer
	returned bool
	late     int // reports after it had returned
}

// renewBatch renews the claims. It renews them one by one if the Locker is no driver.BatchRenewer.
func (s *subject) renewBatch(ctx context.Context, claims []driver.Claim) *batch {
	b := &batch{answers: map[int][]answer{}}
	report := func(i int, held bool, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers[i] = append(b.answers[i], answer{held, err})
		if b.returned {
			b.late++
		}
	}
	if r, ok := s.here.locker.(driver.BatchRenewer); ok {
		r.RenewBatch(ctx, claims, report)
	} else {
		for i, c := range claims {
			held, err := s.here.locker.Renew(ctx, c)
			report(i, held, err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.returned = true
	return b
}

// answer returns the only report on the i-th claim.
func (b *batch) answer(s *subject, i int) answer {
	s.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(s, b.answers[i], 1, "the claim at index %d needs exactly one report", i)
	return b.answers[i][0]
}

// settled checks that exactly n claims were reported on, and that no report came after RenewBatch
// had returned.
func (b *batch) settled(s *subject, n int) {
	s.Helper()
	time.Sleep(4 * early) // a wrong report may come late
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(s, b.answers, n, "the number of claims that were reported on")
	require.Zero(s, b.late, "the number of reports after RenewBatch had returned")
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
	b := s.renewBatch(ctx, claims)
	for i, c := range claims {
		got := b.answer(s, i)
		require.NoError(s, got.err)
		require.Equal(s, i%turns == held || i%turns == raised, got.held, "whether the claim at index %d is held", i)
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
	b := s.renewBatch(ctx, claims)
	for i, c := range claims {
		s.storeError(b.answer(s, i).err, driver.OpRenew, c.Key)
		s.there.requireBusy(s.claim(c.Key), long)
	}
	b.settled(s, len(claims))
}

func emptyBatch(s *subject) {
	s.renewBatch(s.Context(), nil).settled(s, 0)
}

// acquiresBatch makes a batch of claims, and releases them, if the Locker is a
// driver.BatchAcquirer.
func acquiresBatch(s *subject) {
	l, ok := s.here.locker.(driver.BatchAcquirer)
	if !ok {
		return
	}
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
		grants := make([]driver.Answer, n)
		reported := map[int]int{}
		l.AcquireBatch(ctx, claims, func(i int, g driver.Answer, err error) {
			require.NoError(s, err)
			grants[i] = g
			reported[i]++
		})
		require.Len(s, reported, n)
		for i, g := range grants {
			require.Equal(s, 1, reported[i])
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
		reported := map[int]bool{}
		l.ReleaseBatch(ctx, claims, func(i int, held bool, err error) {
			require.NoError(s, err)
			reported[i] = held
		})
		require.Len(s, reported, n)
		for i, held := range reported {
			require.Equal(s, !again && i != 3 && i != 7, held, "index %d", i)
		}
	}
	s.there.mustAcquire(s.claim("batch 0"))
	require.True(s, s.there.renew(taken))
}

func failsBatchOfClaims(s *subject) {
	l, ok := s.here.locker.(driver.BatchAcquirer)
	if !ok {
		return
	}
	ctx, cancel := s.here.context()
	cancel()
	claims := []driver.Claim{s.claim("a"), s.claim("b")}
	reported := 0
	l.AcquireBatch(ctx, claims, func(_ int, _ driver.Answer, err error) {
		require.Error(s, err)
		reported++
	})
	l.ReleaseBatch(ctx, claims, func(_ int, _ bool, err error) {
		require.Error(s, err)
		reported++
	})
	require.Equal(s, 4, reported)
}
