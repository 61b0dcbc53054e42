package guardtest_test

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func brokenRenewals() []broken {
	renewing := func(renew func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error)) guardtest.Backend {
		return wrapped(func(l guard.Locker) guard.Locker {
			return &twist{Locker: l, renew: func(ctx context.Context, c driver.Claim) (bool, error) { return renew(ctx, l, c) }}
		})
	}
	return []broken{
		{
			name: "a renewal restores a lost claim",
			backend: renewing(func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
				g, err := l.TryAcquire(ctx, c)
				return g.State == driver.Granted, err
			}),
			caughtBy: []string{
				"an expired claim is not renewed or released",
				"a renewal does not restore a released claim",
				"a renewal does not restore a claim that the store has lost",
				"random workers never hold a key at the same time",
			},
		},
		{
			name:    "a renewal always returns true",
			backend: renewing(func(context.Context, guard.Locker, driver.Claim) (bool, error) { return true, nil }),
			caughtBy: []string{
				"an expired claim makes way for another",
				"a renewal does not end a minimum hold or a marker",
				"a renewal restarts the TTL",
				"a renewed claim outlives its first TTL",
				"a minimum hold keeps the key busy for every claim",
			},
		},
		{
			name: "a renewal does not change the TTL",
			backend: renewing(func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
				c.TTL = time.Nanosecond
				return l.Renew(ctx, c)
			}),
			caughtBy: []string{"a renewal restarts the TTL", "a renewed claim outlives its first TTL"},
		},
		{name: "any claim can renew", backend: wrapped(impostor(true, false)), caughtBy: []string{
			"a renewal by another claim is refused", "random workers never hold a key at the same time",
		}},
	}
}

// impostor takes any claim that renews or releases for the holder's.
func impostor(renews, releases bool) wrap {
	return func(l guard.Locker) guard.Locker {
		var holders memo[string]
		t := &twist{Locker: l}
		t.acquire = func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State == driver.Granted {
				holders.set(c.Key, c.ID)
			}
			return g, err
		}
		if renews {
			t.renew = func(ctx context.Context, c driver.Claim) (bool, error) {
				c.ID = holders.get(c.Key)
				return l.Renew(ctx, c)
			}
		}
		if releases {
			t.release = func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
				c.ID = holders.get(c.Key)
				return l.Release(ctx, c, after)
			}
		}
		return t
	}
}

func brokenReleases() []broken {
	releasing := func(release func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error)) guardtest.Backend {
		return wrapped(func(l guard.Locker) guard.Locker {
			return &twist{Locker: l, release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
				return release(ctx, l, c, after)
			}}
		})
	}
	return []broken{
		{
			name: "a release does nothing",
			backend: releasing(func(context.Context, guard.Locker, driver.Claim, driver.After) (bool, error) {
				return true, nil
			}),
			caughtBy: []string{
				"a release frees the key at once", "a repeated claim counts once",
				"a call that gave up as it was granted the key leaves it free",
			},
		},
		{
			name: "a release always returns true",
			backend: releasing(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
				_, err := l.Release(ctx, c, after)
				return err == nil, err
			}),
			caughtBy: []string{
				"a second release returns false and changes nothing",
				"an expired claim is not renewed or released",
				"a release by another claim is refused",
				"random workers never hold a key at the same time",
			},
		},
		{
			name: "a release always returns false",
			backend: releasing(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
				_, err := l.Release(ctx, c, after)
				return false, err
			}),
			caughtBy: []string{"a release frees the key at once", "no update made under a lease is lost"},
		},
		{
			name:    "any claim can release",
			backend: wrapped(impostor(false, true)),
			caughtBy: []string{
				"a release by another claim is refused",
				"a release by another claim leaves a minimum hold and a marker as they are",
				"a second release returns false and changes nothing",
				"random workers never hold a key at the same time",
			},
		},
	}
}

func brokenTimes() []broken {
	timed := func(change func(time.Duration) time.Duration) guardtest.Backend {
		return wrapped(func(l guard.Locker) guard.Locker {
			t := mapped(l, func(c *driver.Claim) { c.TTL = change(c.TTL) }).(*twist)
			t.release = func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
				after.Keep = change(after.Keep)
				return l.Release(ctx, c, after)
			}
			return t
		})
	}
	return []broken{
		{
			name:    "time passes twice as fast",
			backend: timed(func(d time.Duration) time.Duration { return d / 2 }),
			caughtBy: []string{
				"an expired claim makes way for another",
				"a minimum hold ends",
				"a done marker ends with its window",
				"random workers never hold a key at the same time",
			},
		},
		{
			name:    "nothing ends",
			backend: timed(func(d time.Duration) time.Duration { return d * 1000 }),
			caughtBy: []string{
				"an expired claim makes way for another",
				"an expired claim is not renewed or released",
				"a minimum hold ends",
				"a done marker ends with its window",
				"random workers never hold a key at the same time",
			},
		},
		{
			name:    "milliseconds are rounded down",
			backend: timed(func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }),
			caughtBy: []string{
				"a TTL of a fraction of a millisecond is not rounded to zero",
				"a renewal for a fraction of a millisecond is not rounded to zero",
				"a minimum hold of a fraction of a millisecond is not rounded to zero",
			},
		},
		{
			name:     "durations are limited to 32 bits of milliseconds",
			backend:  timed(func(d time.Duration) time.Duration { return d % (1 << 32 * time.Millisecond) }),
			caughtBy: []string{"a TTL of ten years is kept"},
		},
	}
}
