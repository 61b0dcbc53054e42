package guardtest_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

func brokenClaims() []broken {
	return []broken{
		{"it grants nothing", answering(func(_ driver.Claim, g *driver.Answer) { *g = driver.Answer{Left: 1} }), []string{
			"a free key is granted", "one of many concurrent claims is granted",
		}},
		{"it grants a held key", answering(func(_ driver.Claim, g *driver.Answer) { g.State, g.Fence = driver.Granted, max(g.Fence, 1) }), []string{
			"a busy key's answer names the holder and the time left", "one of many concurrent claims is granted",
			"random workers never hold a key at the same time", "no update made under a lease is lost",
		}},
		{"it occasionally grants a held key", wrapped(seldomExclusive), []string{"random workers never hold a key at the same time", "no update made under a lease is lost"}},
		{"a grant has the label of its holder", answering(func(c driver.Claim, g *driver.Answer) {
			if g.State == driver.Granted {
				g.Label, g.Left = c.Label, c.TTL
			}
		}), []string{"a free key is granted"}},
		{"fences start at 0", answering(func(_ driver.Claim, g *driver.Answer) { g.Fence = 0 }), []string{"a free key is granted", "fences grow after a release"}},
		{"Left is 0", answering(func(_ driver.Claim, g *driver.Answer) { g.Left = 0 }), []string{
			"a busy key's answer names the holder and the time left", "a done marker answers with its record",
		}},
		{
			name: "Left is too long",
			// as if seconds were taken for milliseconds
			backend:  answering(func(_ driver.Claim, g *driver.Answer) { g.Left *= 1000 }),
			caughtBy: []string{"a busy key's answer names the holder and the time left", "a done marker answers with its record"},
		},
		{"a repeated claim finds the key busy", wrapped(repeatsAre(func(g *driver.Answer) { *g = driver.Answer{Left: 1} })), []string{
			"a repeated claim is granted with the same fence",
		}},
		{"a repeated claim has another fence", wrapped(repeatsAre(func(g *driver.Answer) { g.Fence++ })), []string{"a repeated claim is granted with the same fence"}},
		{"a repeated claim does not restart its TTL", wrapped(ignoresRepeats), []string{"a repeated claim restarts its TTL"}},
		{"a repeated claim counts twice", wrapped(countsRepeats), []string{"a repeated claim counts once"}},
		{"its settings are wrong", wrapped(func(l guard.Locker) guard.Locker { return checked{l} }), []string{"the settings are valid"}},
	}
}

// seldomExclusive grants every fiftieth claim without asking the store.
func seldomExclusive(l guard.Locker) guard.Locker {
	var n, fence atomic.Uint64
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		if n.Add(1)%50 == 0 {
			return driver.Answer{State: driver.Granted, Fence: 1<<52 + fence.Add(1)}, nil
		}
		return l.TryAcquire(ctx, c)
	}}
}

// repeatsAre changes the answers to repeated claims.
func repeatsAre(change func(*driver.Answer)) wrap {
	return func(l guard.Locker) guard.Locker {
		var seen memo[bool]
		return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if seen.set(c.ID, true) && g.State == driver.Granted {
				change(&g)
			}
			return g, err
		}}
	}
}

func ignoresRepeats(l guard.Locker) guard.Locker {
	var grants memo[driver.Answer]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		if g := grants.get(c.ID); g.State == driver.Granted {
			return g, nil
		}
		g, err := l.TryAcquire(ctx, c)
		grants.set(c.ID, g)
		return g, err
	}}
}

func countsRepeats(l guard.Locker) guard.Locker {
	var holds memo[int]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State == driver.Granted {
				holds.set(c.ID, holds.get(c.ID)+1)
			}
			return g, err
		},
		release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			if n := holds.get(c.ID); n > 1 {
				holds.set(c.ID, n-1)
				return l.Renew(ctx, c)
			}
			return l.Release(ctx, c, after)
		},
	}
}

type checked struct{ guard.Locker }

func (checked) Describe() driver.Description {
	return driver.Description{Owners: true, Err: errors.New("the client is nil")}
}

func brokenLabels() []broken {
	return []broken{
		{"labels are lost", answering(func(_ driver.Claim, g *driver.Answer) { g.Label = "" }), []string{
			"a busy key's answer names the holder and the time left", "a label is returned unchanged",
			"a done marker has the label of the run that finished", "a done marker keeps its first label",
		}},
		{"labels end with their first line", answering(func(_ driver.Claim, g *driver.Answer) {
			g.Label, _, _ = strings.Cut(g.Label, "\n")
		}), []string{"a label is returned unchanged", "a done marker has the label of the run that finished"}},
		{"a marker has the label of the claim that was granted", wrapped(labelsOfGrants), []string{"a done marker has the label of the run that finished"}},
		{"a marker has the label of the last release", wrapped(labelsOfReleases), []string{"a done marker keeps its first label"}},
		{"labels are changed to valid UTF-8", answering(func(_ driver.Claim, g *driver.Answer) {
			g.Label = strings.ToValidUTF8(g.Label, "\ufffd")
		}), []string{"a label is returned unchanged"}},
		{"labels are cut short", answering(func(_ driver.Claim, g *driver.Answer) { g.Label = g.Label[:min(len(g.Label), 255)] }), []string{"a label is returned unchanged"}},
		{"a label outlives its holder", wrapped(func(l guard.Locker) guard.Locker {
			var last memo[string]
			return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
				g, err := l.TryAcquire(ctx, c)
				switch {
				case g.State == driver.Granted && c.Label != "":
					last.set(c.Key, c.Label)
				case g.State == driver.Busy:
					g.Label = last.get(c.Key)
				}
				return g, err
			}}
		}), []string{"a label disappears with its holder"}},
	}
}

// labelsOfGrants gives a marker the label of the claim that was granted.
func labelsOfGrants(l guard.Locker) guard.Locker {
	var labels memo[string]
	return &twist{Locker: l, acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
		g, err := l.TryAcquire(ctx, c)
		switch g.State {
		case driver.Granted:
			labels.set(c.Key, c.Label)
		case driver.Done:
			g.Label = labels.get(c.Key)
		case driver.Busy:
		}
		return g, err
	}}
}

// labelsOfReleases gives a marker the label of the last release, even of a repeated one.
func labelsOfReleases(l guard.Locker) guard.Locker {
	var labels memo[string]
	return &twist{
		Locker: l,
		acquire: func(ctx context.Context, c driver.Claim) (driver.Answer, error) {
			g, err := l.TryAcquire(ctx, c)
			if g.State == driver.Done {
				g.Label = labels.get(c.Key)
			}
			return g, err
		},
		release: func(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
			held, err := l.Release(ctx, c, after)
			if held {
				labels.set(c.Key, c.Label)
			}
			return held, err
		},
	}
}

// foldKeys makes different keys equal.
func foldKeys(fold func(string) string) guardtest.Backend {
	return wrapped(mapping(func(c *driver.Claim) { c.Key = fold(c.Key) }))
}

func brokenKeys() []broken {
	independent := []string{"similar keys are independent"}
	return []broken{
		{"keys ignore case", foldKeys(strings.ToLower), independent},
		{"keys are trimmed", foldKeys(strings.TrimSpace), independent},
		{"keys are changed to valid UTF-8", foldKeys(func(k string) string { return strings.ToValidUTF8(k, "?") }), independent},
		{"keys are cut short", foldKeys(func(k string) string { return k[:min(len(k), 1023)] }), independent},
		{"keys with the same hash are equal", foldKeys(func(k string) string {
			var sum byte
			for i := range len(k) {
				sum = sum*31 + k[i]
			}
			return string(sum)
		}), append([]string{"a thousand keys are independent"}, independent...)},
	}
}
