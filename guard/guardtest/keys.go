package guardtest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func keyChecks() []check {
	return []check{
		{name: "similar keys are independent", run: keysAreApart},
		{name: "a thousand keys are independent", run: thousandKeys},
	}
}

// keys returns keys that a backend may confuse with one another or with its own names.
func keys() []string {
	longest := strings.Repeat("k", guard.MaxKey-1)
	return []string{
		"k", "K", "k ", " k", " ", "k\n", "\n", "k\t", "\r\n", "\x01", "\x7f",
		"report", "report:", "report:2026", "report:2026-11-21", ":report", ":", "::",
		"größe", "gro\u0308ße", "大", "🔒", "\xff\xfe", "%C3%BC", "ü",
		"*", "?", "[a-z]", "%a+", "%", "%%", "%s", "^k$", "$", "^", ".*", "k*", "k?", "(k)", "k-", "+",
		"0", "00", "1", "-1", "1e3", "nil", "null", "true", "KEYS[1]", "ARGV[1]",
		"'", `"`, "`", `\`, `k\n`, "k;DROP TABLE locks", "k'; --", "../k", "/k", "k/..",
		"fence", "k:fence", "lock", "k:lock", "lease", "k:lease", "done", "k:done", "owner", "mode", "id",
		"onerun", "onerun:", "onerun:k", "onerun:lease:k", "onerun:fence", "redisson_lock__channel:k", "guard:k", "redlock:k",
		"{k}", "k{", "k}", "}k{", "{}", "{}k", "{{k}}", "{k}:fence", "redisson_lock__channel:{k}",
		longest + "1", longest + "2", longest,
	}
}

func keysAreApart(s *subject) {
	var claims []driver.Claim
	refuse := driver.Describe(s.here.locker).CheckKey
	seen := map[string]bool{}
	for _, key := range append(keys(), s.backend.Keys...) {
		if refuse(key) != nil || seen[key] {
			continue
		}
		seen[key] = true
		c := s.claim(key)
		c.Label = "holder of " + key[:min(len(key), 100)]
		require.Equal(s, driver.Granted, s.here.acquire(c).State, "key %q", key)
		claims = append(claims, c)
	}
	for i, c := range claims {
		require.Equal(s, c.Label, s.there.requireBusy(s.claim(c.Key), long).Label, "key %q", c.Key)
		switch i % 3 {
		case 0:
			s.here.mustRelease(c, driver.After{})
		case 1:
			s.here.mustRelease(c, driver.After{Keep: long})
		case 2:
			s.here.mustRelease(c, driver.After{Keep: long, Done: true, Record: []byte(c.Key)})
		}
	}
	for i, c := range claims {
		g := s.there.acquire(s.claim(c.Key))
		require.Equal(s, []driver.State{driver.Granted, driver.Busy, driver.Done}[i%3], g.State, "key %q", c.Key)
		if g.State == driver.Done {
			require.Equal(s, c.Key, string(g.Record))
		}
	}
}

func thousandKeys(s *subject) {
	claims := make([]driver.Claim, 1000)
	for i := range claims {
		claims[i] = s.claim(fmt.Sprintf("key:%d", i))
	}
	grant := func(p process, i int) error { return answers(p, claims[i], driver.Granted, "") }
	refuse := func(p process, i int) error { return answers(p, s.claim(claims[i].Key), driver.Busy, claims[i].Label) }
	release := func(p process, i int) error {
		held, err := p.tryRelease(claims[i], driver.After{})
		if err == nil && !held {
			err = errors.New("the release was refused")
		}
		return err
	}
	s.each(len(claims), 1, grant)
	s.each(len(claims), 1, refuse)
	s.each(len(claims), 2, release)
	for i := 0; i < len(claims); i += 2 {
		claims[i] = s.claim(claims[i].Key) // the next holder of a free key
	}
	s.each(len(claims), 1, grant)
	s.each(len(claims), 1, refuse)
}

// answers makes the claim, and returns an error unless the answer has that state and label. It
// repeats a contested claim, as process.acquire does.
func answers(p process, c driver.Claim, state driver.State, label string) error {
	g, err := p.tryAcquire(c)
	for err == nil && g.Reason.IsUndecided() {
		time.Sleep(pollStep)
		g, err = p.tryAcquire(c)
	}
	if err == nil && (g.State != state || g.Label != label) {
		err = fmt.Errorf("the answer is %v with the label %q", g.State, g.Label)
	}
	return err
}

// each makes a call for every step-th index below n, many at the same time, and checks that no
// call failed.
func (s *subject) each(n, step int, call func(p process, i int) error) {
	s.Helper()
	errs := make([]error, n)
	slots := make(chan struct{}, 50)
	var all sync.WaitGroup
	for i := 0; i < n; i += step {
		p := []process{s.here, s.there}[i/step%2]
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = call(p, i)
		})
	}
	all.Wait()
	for i, err := range errs {
		require.NoError(s, err, "the key at index %d", i)
	}
}
