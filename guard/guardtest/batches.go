package guardtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func batchChecks() []check {
	return []check{
		{name: "a batch of renewals reports on each claim", run: renewsBatch},
		{name: "a batch whose context has ended reports an error for each claim", run: failsBatch},
		{name: "an empty batch reports nothing", run: emptyBatch},
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
func (s *subject) renewBatch(ctx context.Context, claims []guard.Claim) *batch {
	b := &batch{answers: map[int][]answer{}}
	report := func(i int, held bool, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.answers[i] = append(b.answers[i], answer{held, err})
		if b.returned {
			b.late++
		}
	}
	if r, ok := driver.Ability[driver.BatchRenewer](s.here.locker); ok {
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
	claims := make([]guard.Claim, n)
	for i := range claims {
		c := s.claim(fmt.Sprintf("key:%d", i))
		switch i % turns {
		case held, raised:
			c.Fence = s.here.mustAcquire(c).Fence
		case released:
			s.here.mustAcquire(c)
			s.here.mustRelease(c, guard.After{})
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
			require.Equal(s, guard.Busy, g.State)
			require.Greater(s, g.Left, long)
			require.Equal(s, c.Fence, s.here.mustAcquire(c).Fence, "the fence after the renewal")
		case another:
			require.Equal(s, guard.Busy, g.State)
			require.LessOrEqual(s, g.Left, long)
		default:
			require.Equal(s, guard.Granted, g.State)
		}
	}
	b.settled(s, n)
}

func failsBatch(s *subject) {
	claims := make([]guard.Claim, 5)
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
