package guardtest_test

import (
	"context"
	"testing"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// seatBackend is a backend that can be a node of a quorum, whose keys have a limit.
func seatBackend(w wrap) guardtest.Backend {
	return guardtest.Backend{
		New: func(testing.TB) guard.Locker {
			m := memory.New()
			return &sharer{Locker: w(m), Queuer: m}
		},
		Bubble: true, Shares: []int{2, 5, driver.Any}, Seats: true,
	}
}

func TestRun_passesAGoodBackendWithSeats(t *testing.T) { guardtest.Run(t, seatBackend(same)) }

const (
	sharesInPairs     = "a key is shared up to the smallest limit of those that go together"
	excludesUnlimited = "claims with a limit and claims without one do not go together"
	grantsSeat        = "a node grants the seat that a quorum asks for, or none"
	seatsFitLimits    = "a node grants no seat above the limit of another holder"
	keepsSeat         = "a repeated claim of a quorum keeps its seat"
	renewsSeat        = "a claim that has another seat is not renewed"
)

// ofQuorum changes the claims that a quorum makes.
func ofQuorum(change func(c *guard.Claim)) wrap {
	return func(l guard.Locker) guard.Locker {
		return mapped(l, func(c *guard.Claim) {
			if c.Seat != 0 {
				change(c)
			}
		})
	}
}

func brokenSeats() []broken {
	return []broken{
		{
			name:     "holders are counted",
			backend:  seatBackend(ofQuorum(func(c *guard.Claim) { c.Seat = 0 })),
			caughtBy: []string{excludesUnlimited, grantsSeat, seatsFitLimits, renewsSeat},
		},
		{
			name: "only its own limit counts for a claim",
			backend: seatBackend(ofQuorum(func(c *guard.Claim) {
				if c.Among <= driver.MaxSeats {
					c.Among = driver.MaxSeats
				}
			})),
			caughtBy: []string{sharesInPairs, grantsSeat, seatsFitLimits},
		},
		{
			name: "claims without a limit share the key with all others",
			backend: seatBackend(ofQuorum(func(c *guard.Claim) {
				if c.Among > driver.MaxSeats {
					c.Among, c.Seat = driver.MaxSeats, driver.AnySeat
				}
			})),
			caughtBy: []string{excludesUnlimited},
		},
		{
			name:     "any seat is granted",
			backend:  seatBackend(ofQuorum(func(c *guard.Claim) { c.Seat = driver.AnySeat })),
			caughtBy: []string{grantsSeat, renewsSeat},
		},
		{
			name: "a repeated claim gets another seat",
			backend: seatBackend(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
					g, err := l.TryAcquire(ctx, c)
					if g.Held && c.Seat > 0 {
						g.Seat = c.Seat
					}
					return g, err
				}}
			}),
			caughtBy: []string{keepsSeat},
		},
		{
			name: "open seats are not reported",
			backend: seatBackend(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
					g, err := l.TryAcquire(ctx, c)
					g.Open = 0
					return g, err
				}}
			}),
			caughtBy: []string{grantsSeat, seatsFitLimits},
		},
		{
			name: "the answer names one of the holders",
			backend: seatBackend(func(l guard.Locker) guard.Locker {
				return &twist{Locker: l, acquire: func(ctx context.Context, c guard.Claim) (guard.Grant, error) {
					g, err := l.TryAcquire(ctx, c)
					g.Holder = g.Holder[:min(len(g.Holder), 8)]
					return g, err
				}}
			}),
			caughtBy: []string{grantsSeat},
		},
	}
}
