package guardtest_test

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func brokenRenewals() []broken {
	return []broken{
		{"a renewal restores a lost claim", wrapped(renews(func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
			g, err := l.TryAcquire(ctx, c)
			return g.State == driver.Granted, err
		})), []string{
			"an expired claim is not renewed or released", "a renewal does not restore a released claim",
			"a renewal does not restore a claim that the store has lost", "random workers never hold a key at the same time",
		}},
		{"a renewal always returns true", wrapped(renews(func(context.Context, guard.Locker, driver.Claim) (bool, error) { return true, nil })), []string{
			"an expired claim makes way for another", "a renewal does not end a minimum hold or a marker",
			"a renewal restarts the TTL", "a renewed claim outlives its first TTL",
			"a minimum hold keeps the key busy for every claim",
		}},
		{"a renewal does not change the TTL", wrapped(renews(func(ctx context.Context, l guard.Locker, c driver.Claim) (bool, error) {
			c.TTL = time.Nanosecond
			return l.Renew(ctx, c)
		})), []string{"a renewal restarts the TTL", "a renewed claim outlives its first TTL"}},
		{"any claim can renew", wrapped(impostor(true, false)), []string{
			"a renewal by another claim is refused", "random workers never hold a key at the same time",
		}},
	}
}

// impostor takes any claim that renews or releases for the holder's.
func impostor(renewing, releasing bool) wrap {
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
		if renewing {
			t.renew = func(ctx context.Context, c driver.Claim) (bool, error) {
				c.ID = holders.get(c.Key)
				return l.Renew(ctx, c)
			}
		}
		if releasing {
			t.release = func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
				c.ID = holders.get(c.Key)
				return l.Release(ctx, c, after)
			}
		}
		return t
	}
}

func brokenReleases() []broken {
	return []broken{
		{"a release does nothing", wrapped(releases(func(context.Context, guard.Locker, driver.Claim, driver.After) (bool, error) {
			return true, nil
		})), []string{"a release frees the key at once", "a repeated claim counts once", "a call that gave up as it was granted the key leaves it free"}},
		{"a release always returns true", wrapped(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			_, err := l.Release(ctx, c, after)
			return err == nil, err
		})), []string{
			"a second release returns false and changes nothing", "an expired claim is not renewed or released",
			"a release by another claim is refused", "random workers never hold a key at the same time",
		}},
		{"a release always returns false", wrapped(releases(func(ctx context.Context, l guard.Locker, c driver.Claim, after driver.After) (bool, error) {
			_, err := l.Release(ctx, c, after)
			return false, err
		})), []string{"a release frees the key at once", "no update made under a lease is lost"}},
		{"any claim can release", wrapped(impostor(false, true)), []string{
			"a release by another claim is refused", "a release by another claim leaves a minimum hold and a marker as they are",
			"a second release returns false and changes nothing", "random workers never hold a key at the same time",
		}},
	}
}

func brokenTimes() []broken {
	timed := func(change func(time.Duration) time.Duration) guardtest.Backend {
		return wrapped(func(l guard.Locker) guard.Locker {
			t := mapped(l, func(c *driver.Claim) { c.TTL = change(c.TTL) })
			t.release = func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
				after.Keep = change(after.Keep)
				return l.Release(ctx, c, after)
			}
			return t
		})
	}
	return []broken{
		{"time passes twice as fast", timed(func(d time.Duration) time.Duration { return d / 2 }), []string{
			"an expired claim makes way for another", "a minimum hold ends", "a done marker ends with its window",
			"random workers never hold a key at the same time",
		}},
		{"nothing ends", timed(func(d time.Duration) time.Duration { return d * 1000 }), []string{
			"an expired claim makes way for another", "an expired claim is not renewed or released", "a minimum hold ends",
			"a done marker ends with its window", "random workers never hold a key at the same time",
		}},
		{"milliseconds are rounded down", timed(func(d time.Duration) time.Duration { return d.Truncate(time.Millisecond) }), []string{
			"a TTL of a fraction of a millisecond is not rounded to zero",
			"a renewal for a fraction of a millisecond is not rounded to zero",
			"a minimum hold of a fraction of a millisecond is not rounded to zero",
		}},
		{"durations are limited to 32 bits of milliseconds", timed(func(d time.Duration) time.Duration { return d % (1 << 32 * time.Millisecond) }), []string{
			"a TTL of ten years is kept",
		}},
	}
}
