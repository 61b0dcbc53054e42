package system_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is a candidate when this is set to the server's address.
const candidateEnv = "ONERUN_TEST_CANDIDATE"

const (
	candidates = 4
	leaderTTL  = 2 * time.Second
	soon       = 10 * time.Second // how soon precisely is tested in virtual time, in package guard
)

// campaign campaigns until its input ends. It says when a term begins, and when it has ended: until
// when it believed that it led.
func campaign(addr string) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	g, err := guard.New(single.New(redis.NewClient(&redis.Options{Addr: addr})), guard.WithTTL(leaderTTL))
	if err != nil {
		fmt.Println("fails", err)
		return
	}
	var c *guard.Candidate
	c, err = g.Candidate("leader", func(ctx context.Context) error {
		led := time.Now()
		fmt.Println("begins", guard.Fence(ctx), led.UnixNano())
		for ctx.Err() == nil {
			now := time.Now()
			if _, ok := c.Leading(); !ok {
				break
			}
			led = now
			time.Sleep(time.Millisecond)
		}
		fmt.Println("ends", guard.Fence(ctx), led.UnixNano())
		<-ctx.Done()
		return nil
	})
	if err == nil {
		err = c.Run(ctx)
	}
	if check := c.Check(); !errors.Is(err, context.Canceled) || check != nil {
		fmt.Println("fails", err, check)
	}
}

// A reign is a term that a process has told of.
type reign struct {
	process     *processtest.Child
	fence       uint64
	begin, last int64 // last is 0 as long as it is under way
}

// reigns returns what the processes have told, in the order in which the terms began.
func reigns(t *testing.T, processes []*processtest.Child) (all []reign) {
	t.Helper()
	for _, p := range processes {
		said := p.Said()
		for line := range strings.Lines(said) {
			var word string
			r := reign{process: p}
			if n, _ := fmt.Sscan(line, &word, &r.fence, &r.begin); n < 3 || !strings.HasSuffix(line, "\n") {
				require.NotEqual(t, "fails", word, line)
				continue
			}
			if word == "begins" {
				all = append(all, r)
			} else {
				all[len(all)-1].last = r.begin
			}
		}
	}
	slices.SortFunc(all, func(a, b reign) int { return int(a.begin - b.begin) })
	return all
}

// newest waits for a term after that fence.
func newest(t *testing.T, processes []*processtest.Child, after uint64) reign {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if all := reigns(t, processes); len(all) > 0 && all[len(all)-1].fence > after {
			return all[len(all)-1]
		}
		require.True(t, time.Now().Before(deadline), "nobody leads")
	}
}

// Of four processes, one leads at a time, whatever happens to it and to the store.
func TestCandidates_oneLeadsAndTheNextFollowsSoon(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	var processes, running []*processtest.Child
	start := func() {
		p := processtest.Self(t, candidateEnv+"="+server.Addr())
		processes, running = append(processes, p), append(running, p)
	}
	for range candidates {
		start()
	}
	killed := map[*processtest.Child]int64{}
	faults := []struct {
		name string
		// strikes returns the instant from which the next leader has a TTL to lead.
		strikes func(leader reign) time.Time
		after   func(leader reign) // when the next one leads
	}{
		{"kill -9", func(leader reign) time.Time {
			at := time.Now()
			leader.process.Kill()
			killed[leader.process] = time.Now().UnixNano()
			running = slices.DeleteFunc(running, func(p *processtest.Child) bool { return p == leader.process })
			start()
			return at
		}, func(reign) {}},
		{"SIGSTOP", func(leader reign) time.Time {
			at := time.Now()
			require.NoError(t, leader.process.Freeze())
			return at
		}, func(leader reign) {
			time.Sleep(leaderTTL / 2)
			require.NoError(t, leader.process.Thaw())
		}},
		{"store stops for two TTLs", func(reign) time.Time {
			server.Freeze()
			time.Sleep(2 * leaderTTL)
			server.Thaw()
			return time.Now()
		}, func(reign) {}},
	}
	last := newest(t, processes, 0)
	for round := range faults {
		fault := faults[round]
		// Faults come at different times after a renewal.
		time.Sleep(leaderTTL/3 + 200*time.Millisecond*time.Duration(round))
		last = newest(t, processes, last.fence-1)
		at := fault.strikes(last)
		next := newest(t, processes, last.fence)
		took := time.Unix(0, next.begin).Sub(at)
		t.Logf("%s: the next leads after %v", fault.name, took.Round(time.Millisecond))
		require.LessOrEqual(t, took, leaderTTL+soon, fault.name)
		fault.after(last)
		last = next
	}
	for _, p := range running {
		p.CloseInput()
	}
	for _, p := range running {
		p.Ends()
	}
	requireOneAtATime(t, reigns(t, processes), killed)
}

// requireOneAtATime requires that no term begins before the one before it has ended, and that their
// numbers grow.
func requireOneAtATime(t *testing.T, all []reign, killed map[*processtest.Child]int64) {
	t.Helper()
	for i := 1; i < len(all); i++ {
		before, next := all[i-1], all[i]
		if before.last == 0 {
			before.last = killed[before.process]
		}
		require.NotZero(t, before.last)
		require.Less(t, before.last, next.begin, "two lead")
		require.Greater(t, next.fence, before.fence, "the term is a fence")
	}
}
