package main

import (
	"context"
	"flag"
	"fmt"
)

// A benchmark is a run of go test -bench in a folder.
type benchmark struct {
	says, folder string
	// args begin with the pattern.
	args string
}

// run runs the benchmark.
func (b benchmark) run(ctx context.Context, c console) error {
	if b.says != "" {
		c.say("%s", b.says)
	}
	return c.sh(ctx, fmt.Sprintf("cd %s && go test -run '^$' -bench %s", b.folder, b.args))
}

var benchmarks = []benchmark{
	{"the stores; and a run beside SET NX and a script by hand, on one client and one redis-server", ".", "'.' -benchmem -count 5 ./backend/..."},
	{"reentrant beside single", "bench", "'Reentrant$' -count 5 ."},
	{"idempotent endpoints beside the same round trips by hand", "bench", "HTTP -benchmem -count 5 ./..."},
	{"tasks through asynq beside bare asynq", "bench", "Asynq -benchtime 10000x -count 5 ./..."},
	{"a queue of tasks on one, two and four worker processes", "bench", "Replicas -benchtime 1x -count 5 ."},
	{"PostgreSQL beside advisory locks and unique jobs of River", "bench", "Postgres -benchmem -count 5 ."},
	{"MySQL beside GET_LOCK, and SQLite beside a row that is inserted and deleted", "bench", "'MySQL|SQLite' -benchmem -count 5 ."},
	{"RedLock with some of five servers frozen; a pair of redsync's takes seconds then, so it makes one", "bench", "'RedLockFrozen/impl=onerun' -benchtime 3000x -count 3 ./..."},
	{"", "bench", "'RedLockFrozen/impl=redsync' -benchtime 1x ./..."},
}

// bench writes the report and the charts into bench. Its short form takes a few rounds of each
// benchmark, so that none becomes useless unnoticed.
func bench(f *flag.FlagSet) runFunc {
	count := f.Int("rounds", 5, "how many rounds")
	short := f.Bool("short", false, "a few rounds, without a report")
	return func(ctx context.Context, c console) error {
		if *short {
			return benchShort(ctx, c)
		}
		for _, b := range benchmarks {
			if err := b.run(ctx, c); err != nil {
				return err
			}
		}
		if err := runRounds(ctx, c, *count); err != nil {
			return err
		}
		if err := runGrowth(ctx, c); err != nil {
			return err
		}
		c.say("what was to be reached")
		return c.sh(ctx, `cd bench
			cat rounds.out growth.out | go run ./table -complete >report.md || { cat report.md; exit 1; }
			cat report.md
			go run ./charts -out . report.md`)
	}
}

// benchShort compiles the benchmarks of bench once. The second and the third command write what the
// table is made of. A slow machine does not carry 512 callers of each peer in time.
func benchShort(ctx context.Context, c console) error {
	c.say("benchmarks, a few rounds each, so that they cannot rot")
	for _, script := range []string{
		"go test -vet=off -ldflags=-w -run '^$' -bench . -benchtime 20x ./backend/memory ./backend/single",
		"cd bench && go test -vet=off -ldflags=-w -c -o bench.test . && rm -f short.out",
		benchTest + "'Reentrant$|HTTP|Asynq|Frozen$/impl=onerun' -test.skip '.*/.*/g=512' -test.benchtime 10x",
		benchTest + "'[Cc]ontended$|RedLock$|Alone$|HandOff|Readers|Limits' -test.skip '.*/.*/g=512' -test.short -test.benchtime 20x >>short.out || { cat short.out; exit 1; }",
		benchTest + "'Waiters|Held|Processes' -test.short -test.benchtime 1x >>short.out || { cat short.out; exit 1; }",
		benchTest + "'Postgres|MySQL|SQLite' -test.benchtime 10x",
		"cd bench && go run ./table <short.out",
	} {
		if err := c.sh(ctx, script); err != nil {
			return err
		}
	}
	return nil
}

func rounds(f *flag.FlagSet) runFunc {
	count := f.Int("rounds", 5, "how many rounds; the table has the medians")
	return func(ctx context.Context, c console) error { return runRounds(ctx, c, *count) }
}

// runRounds runs all benchmarks in turn in each round, so that slow minutes of the machine affect
// all of them.
func runRounds(ctx context.Context, c console, count int) error {
	c.say("ours and the peers, on the same servers in the same run: %d rounds, in bench/rounds.out", count)
	if err := c.sh(ctx, "cd bench && go test -c -o bench.test . && rm -f rounds.out"); err != nil {
		return err
	}
	for round := range count {
		c.say("round %d", round+1)
		for _, args := range []string{
			"'Uncontended$|RedLock$|Alone$' -test.benchtime 0.5s",
			"'Contended$' -test.benchtime 2s",
			"'HTTP(Guard|Empty)$/impl=/g=1$' -test.benchtime 0.5s",
			"'Readers|Limits' -test.benchtime 0.5s",
			"HandOff -test.benchtime 500x",
		} {
			if err := c.sh(ctx, benchTest+args+" >>rounds.out || { tail -n 50 rounds.out; exit 1; }"); err != nil {
				return err
			}
		}
	}
	return nil
}

// benchTest runs the compiled benchmarks of bench that match the pattern behind it.
const benchTest = "cd bench && ./bench.test -test.run '^$' -test.timeout 15m -test.bench "

func growth(*flag.FlagSet) runFunc { return runGrowth }

func runGrowth(ctx context.Context, c console) error {
	c.say("how the cost grows, in bench/growth.out")
	if err := c.sh(ctx, "cd bench && go test -c -o bench.test ."); err != nil {
		return err
	}
	if err := c.sh(ctx, benchTest+"'Waiters|Held|Processes' -test.benchtime 1x >growth.out || { tail -n 50 growth.out; exit 1; }"); err != nil {
		return err
	}
	return c.sh(ctx, "cd bench && go run ./table -figures <growth.out")
}
