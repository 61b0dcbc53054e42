package guardtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
)

func batchChecks() []check {
	return []check{
		{name: "a batch of renewals is answered one by one", run: renewsBatch},
		{name: "a batch of renewals whose context is over fails one by one", run: failsBatch},
		{name: "a batch of no renewals reports nothing", run: emptyBatch},
	}
}

// An answer is one report on a renewal in a batch.
type answer struct {
	held bool
	err  error
}

// A batch is a call of RenewBatch and what it has reported.
type batch struct {
	mu       sync.Mutex
	answers  map[int][]answer
	returned bool
	late     int // reports after it had returned
}

// renewBatch renews the claims, one after the other if the Locker has no way to renew many.
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
	if r, ok := guard.Ability[guard.BatchRenewer](s.here.locker); ok {
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
	require.Len(s, b.answers[i], 1, "reports on the claim at %d", i)
	return b.answers[i][0]
}

// settled checks that there were n reports and that none came after the call had returned.
func (b *batch) settled(s *subject, n int) {
	s.Helper()
	time.Sleep(4 * early) // for a report that should not come
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Len(s, b.answers, n, "claims that were reported on")
	require.Zero(s, b.late, "reports after RenewBatch had returned")
}

// The claims of a batch, in turn.
const (
	held     = iota
	raised   // held, and to be given a higher fence
	released // held before, and now by nobody
	another  // held by another
	unknown  // never claimed
	turns
)

func renewsBatch(s *subject) {
	const n = 250
	claims := make([]guard.Claim, n)
	for i := range claims {
		c := s.claim(fmt.Sprintf("key:%d", i))
		switch i % turns {
		case held, raised:
			c.Fence = s.here.take(c).Fence
		case released:
			s.here.take(c)
			s.here.give(c, guard.After{})
		case another:
			s.there.take(s.claim(c.Key))
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
		require.Equal(s, i%turns == held || i%turns == raised, got.held, "the claim at %d", i)
		g := s.there.acquire(s.claim(c.Key))
		switch i % turns {
		case held, raised:
			require.Equal(s, guard.Busy, g.State)
			require.Greater(s, g.Left, long)
			require.Equal(s, c.Fence, s.here.take(c).Fence, "the fence after the renewal")
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
		s.here.take(claims[i])
		claims[i].TTL = 2 * long
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	b := s.renewBatch(ctx, claims)
	for i, c := range claims {
		s.storeError(b.answer(s, i).err, guard.OpRenew, c.Key)
		s.there.refused(s.claim(c.Key), long)
	}
	b.settled(s, len(claims))
}

func emptyBatch(s *subject) {
	s.renewBatch(s.Context(), nil).settled(s, 0)
}
