//go:build !race

package simulation_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// The simulation can fail: each of these breaks one rule, and is found out by the invariant that
// the rule is for.
func TestLong_simulationFindsWhatIsBroken(t *testing.T) {
	leftout.IfShort(t)
	for name, m := range map[string]struct {
		mutate    mutation
		invariant string
		first     uint64 // the seed to begin with, shortly before one that finds it out
	}{
		"validity is counted from after the reply": {mutation{store: countFromReply}, "I1", 0},
		"release does not check the owner":         {mutation{store: releaseAnybodys}, "I7", 0},
		"renewal does not check the owner":         {mutation{store: renewAnybodys}, "I7", 0},
		"a renewal without an answer counts":       {mutation{store: trustRenewals}, "I1", 0},
		"fences are a counter that can be lost":    {mutation{store: countFences}, "I2", 0},
		"a lost counter starts at the clock":       {mutation{script: &patch{"clock + AHEAD - 1", "clock - 1"}}, "I2", 105},
		"fences are reserved without a bound":      {mutation{script: &patch{"math.max(math.min(reserved, most), 0)", "reserved"}}, "I2", 0},

		"a run leaves no done marker":                   {asksFor(noMarker), "once", 0},
		"a tick leaves no done marker":                  {asksFor(noMarkerOfTicks), "tick", 12},
		"a run that failed leaves a done marker":        {asksFor(markFailures), "once", 0},
		"a minimum hold is not kept":                    {asksFor(noHold), "hold", 0},
		"a waiter is the last again after each refusal": {mutation{do: lastAgain}, "order", 0},
		"a waiter that leaves keeps its position":       {mutation{do: leaverKeepsPosition}, "I4", 0},
		"a waiter ignores the end of its context":       {mutation{do: ignoresContext}, "I6", 35},
		"errors are not typed":                          {mutation{do: untyped}, "I8", 0},
		"nobody sees that the host was suspended":       {mutation{awake: true}, "I3", 7},
		"the resource takes a write with any fence":     {mutation{unfence: true}, "I2", 0},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := m.first; seed < m.first+500; seed++ {
				if _, cast := backends[0].lot(seed); cast == adapters && m.mutate.store != nil {
					continue // a store that is broken so has no Ledger, which cron needs
				}
				w := simulate(t, backends[0], m.mutate, seed, &tally{})
				for _, v := range w.violations { // others may be broken as well
					if v.invariant == m.invariant {
						t.Logf("seed %d: %v", seed, v)
						return
					}
				}
			}
			require.Fail(t, "it was not found out within 500 seeds")
		})
	}
}

// So can the worlds that share keys.
func TestLong_sharingFindsWhatIsBroken(t *testing.T) {
	leftout.IfShort(t)
	for name, m := range map[string]struct {
		mutate    mutation
		invariant string
	}{
		"a key has one holder more than its claims allow": {onNode(func(w driver.Wrapper) guard.Locker { return oneMore{w} }), "I1"},
		"a claim does not say that it waits":              {onNode(func(w driver.Wrapper) guard.Locker { return unwanted{w} }), "starved"},
		"a release of a claim without a grant is lost":    {onNode(func(w driver.Wrapper) guard.Locker { return wantedStill{w} }), "left"},
		"a renewal does not raise the fence":              {onNode(func(w driver.Wrapper) guard.Locker { return unraised{w} }), "I2"},
		"the store does not know a fence":                 {mutation{asks: useNextFence}, "I2"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(50) {
				for _, v := range simulate(t, sharing, m.mutate, seed, &tally{}).violations {
					if v.invariant == m.invariant {
						t.Logf("seed %d: %v", seed, v)
						return
					}
				}
			}
			require.Fail(t, "it was not found out within 50 seeds")
		})
	}
}

// onNode has the processes see the node in another way.
func onNode(change func(w driver.Wrapper) guard.Locker) mutation {
	return mutation{store: func(inner guard.Locker, _ *process) guard.Locker { return change(driver.Wrapper{Locker: inner}) }}
}

type oneMore struct{ driver.Wrapper }

func (m oneMore) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	c.MaxHolders = max(c.MaxHolders, 1) + 1
	return m.Locker.TryAcquire(ctx, c)
}

type unwanted struct{ driver.Wrapper }

func (m unwanted) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	if c.Queue == driver.Retried {
		c.Queue = driver.Unqueued
	}
	return m.Locker.TryAcquire(ctx, c)
}

// wantedStill loses releases of claims that were never granted, which are those without a fence.
type wantedStill struct{ driver.Wrapper }

func (m wantedStill) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if c.Fence == 0 {
		return false, nil
	}
	return m.Locker.Release(ctx, c, after)
}

// unraised renews with the fence that a claim was granted.
type unraised struct{ driver.Wrapper }

func (m unraised) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	c.Fence = 0
	return m.Locker.Renew(ctx, c)
}

// useNextFence has a Guard use the fence after those that the store has granted.
func useNextFence(inner guard.Locker, _ *process) guard.Locker {
	return nextFence{driver.Wrapper{Locker: inner}}
}

type nextFence struct{ driver.Wrapper }

func (m nextFence) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	grant, err := m.Locker.TryAcquire(ctx, c)
	if grant.State == driver.Granted {
		grant.Fence += uint64(grant.Reserved) + 1
		grant.Reserved = 0
	}
	return grant, err
}

// mutant passes everything on to the Locker that it wraps, and hides its abilities.
type mutant struct {
	guard.Locker
	process *process
}

// countFromReply has the Guard count a lease from after the reply: the store is asked for a lease
// that is shorter by as long as the reply then takes.
func countFromReply(inner guard.Locker, p *process) guard.Locker {
	return lateMutant{mutant{inner, p}}
}

type lateMutant struct{ mutant }

func (m lateMutant) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	late := upTo(m.process.world.rng(c.ID+time.Now().String()), c.TTL/2)
	c.TTL -= late
	reply := time.After(late)
	grant, err := m.mutant.TryAcquire(ctx, c)
	<-reply
	return grant, err
}

// releaseAnybodys deletes the key, also if the claim does not hold it.
func releaseAnybodys(inner guard.Locker, p *process) guard.Locker {
	return carelessRelease{mutant{inner, p}}
}

type carelessRelease struct{ mutant }

func (m carelessRelease) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	if after.Keep > 0 {
		return m.mutant.Release(ctx, c, after)
	}
	return true, m.each(ctx, c, "redis.call('DEL', key)")
}

// renewAnybodys makes the key last, also if the claim does not hold it.
func renewAnybodys(inner guard.Locker, p *process) guard.Locker {
	return carelessRenewal{mutant{inner, p}}
}

type carelessRenewal struct{ mutant }

func (m carelessRenewal) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	return true, m.each(ctx, c, "redis.call('PEXPIRE', key, ARGV[3])")
}

// trustRenewals takes it that a lease is renewed, whatever the store says, or does not say.
func trustRenewals(inner guard.Locker, p *process) guard.Locker {
	return trustingRenewal{mutant{inner, p}}
}

type trustingRenewal struct{ mutant }

func (m trustingRenewal) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	_, _ = m.mutant.Renew(ctx, c)
	return true, nil
}

// each does something to the lease of c's key. The claim's ID is among the arguments so that the
// audit takes it for what it says it is: about this claim.
func (m mutant) each(ctx context.Context, c driver.Claim, do string) error {
	script := "for _, key in ipairs(redis.call('KEYS', '*lease:' .. ARGV[1])) do " + do + " end return 1"
	return m.process.clients[0].Eval(ctx, script, nil, c.Key, c.ID, c.TTL.Milliseconds()).Err()
}

// countFences takes fences from a counter that goes with the rest when a server forgets.
func countFences(inner guard.Locker, p *process) guard.Locker {
	return countedFences{mutant{inner, p}}
}

type countedFences struct{ mutant }

func (m countedFences) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	grant, err := m.mutant.TryAcquire(ctx, c)
	if err != nil || grant.State != driver.Granted {
		return grant, err
	}
	fence, err := m.process.clients[0].Incr(ctx, "fences").Uint64()
	grant.Fence = fence
	return grant, err
}
