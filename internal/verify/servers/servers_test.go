package servers_test

import (
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/backends"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A server is a program to test.
type server struct {
	from    string // where the program is from
	program string // "" for the redis-server of PATH
}

// byDefault is the server on which all modes are tried.
const byDefault = "PATH"

// listed returns the default server, and those of the environment.
func listed(t *testing.T) []server {
	t.Helper()
	all := []server{{from: byDefault}}
	for item := range strings.FieldsFuncSeq(os.Getenv(serversEnv), func(r rune) bool { return r == ',' || r == '\n' }) {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		from, program, ok := strings.Cut(item, "=")
		require.True(t, ok, "%s: %q is not name=program", serversEnv, item)
		all = append(all, server{from, program})
	}
	return all
}

func TestServers(t *testing.T) {
	all := newReport()
	t.Cleanup(func() { all.finish(t) })
	for _, s := range listed(t) {
		t.Run(s.from, func(t *testing.T) {
			if s.program != "" {
				redistest.Use(t, s.program)
			}
			build := redistest.ProgramBuild(t)
			all.start(build, s)
			for _, m := range modes {
				if !m.each && s.from != byDefault || !full() && m.short == "" {
					continue
				}
				t.Run(m.name, func(t *testing.T) {
					t.Parallel() // two at a time, as all of them mostly wait
					t.Cleanup(func() { all.add(build, m.name, !t.Failed()) })
					m.run(t)
				})
			}
		})
	}
}

// run runs the conformance suite and the faults on each backend. The short form is the first fault
// on one backend.
func (m mode) run(t *testing.T) {
	for _, name := range backends.OnOneRedis {
		backend := func(rdb redis.UniversalClient) guard.Locker { return backends.On(name, rdb) }
		if !full() && name != m.short {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if full() {
				t.Run("suite", func(t *testing.T) { m.suite(t, name) })
			}
			for i, f := range m.faults {
				if full() || i == 0 {
					t.Run(f.name, func(t *testing.T) { f.run(t, m, backend, name) })
				}
			}
		})
	}
}

// suite is what backend_test does for the usual modes.
func (m mode) suite(t *testing.T, backend string) {
	s := m.start(t, backend)
	var shares []int
	if backend == "single" {
		shares = []int{2, driver.Unlimited}
	}
	guardtest.Run(t, guardtest.Backend{
		New:    func(t testing.TB) guard.Locker { s.flush(t); return backends.On(backend, s.connect(t)) },
		Again:  func(t testing.TB, _ guard.Locker) guard.Locker { return backends.On(backend, s.connect(t)) },
		Flush:  s.forget,
		Freeze: s.freeze,
		Owners: backend == "reentrant",
		Ledger: true, Notifies: true, Queues: true, Shares: shares,
		Keys: []string{"k:{tag}", "{tag}k"},
	})
	s.requireUndenied(t)
}
