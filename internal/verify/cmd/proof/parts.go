package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

// verify is the folder of the proof.
const verify = "./internal/verify/"

// parts returns the parts, first what the proof is, and then what make check runs beside it.
func parts() []part {
	return []part{
		{"fault", "worlds, mutants, models; then all faults of servers, networks and processes, on each backend: 30 minutes", []string{"redis", "spin"}, fault},
		{"worlds", "the simulation over many seeds of all backends, and of keys that are shared: 10 minutes", nil, worlds},
		{"sim", "the simulation of each backend over as many seeds: 5 minutes", nil, sim},
		{"mutants", "the rules of the engine, each broken on purpose, and the tests that notice; some of them by name: 5 minutes", []string{"redis"}, mutants},
		{"model", "the models of the rules, searched by spin, and with each rule broken: 5 minutes", []string{"spin"}, model},
		{"cron", "cron jobs and schedulers in processes with different clocks, killed, frozen and replaced: 6 minutes", []string{"redis"}, cron},
		{"soak", "six processes with all adapters, under faults; their events stay in bin/_artifacts: 10 minutes", []string{"redis"}, soak},
		{"load", "100,000 leases held, and as many waiters, on real servers: 5 minutes", []string{"redis"}, load},
		{"failover", "each kind of store fails over right after a grant, 200 times: leases that were forgotten; -md writes the table into docs: 30 minutes", []string{"redis", "postgres", "mysql", "etcd"}, failover},
		{"brokers", "each broker of Watermill under each fault: messages that were lost, handled twice or published twice; -md writes the table into docs: 2 minutes", []string{"redis", "postgres", "rabbitmq"}, brokers},
		{"gozero", "the HTTP middleware behind a server of go-zero, which no other test compiles: 2 minutes", nil, gozero},
		{"servers", "the suite and the faults on each server that Debian has, and over each kind of connection; then docs/servers.md: 15 minutes", []string{"redis"}, servers},
		{"scale", "what one server carries and what a fleet costs, on a quiet machine; then docs/scale.md: 10 minutes", []string{"redis"}, scale},
		{"fleets", "our locks beside those of other languages and libraries, in processes that are killed: a minute", []string{"redis", "fleets"}, fleets},
		{"fuzz", "the parsers of foreign input, on random input: 15 minutes", []string{"redis"}, fuzz},
		{"bench", "what a run costs beside the peers; then the table of the goals and the charts: 30 minutes", []string{"redis", "postgres"}, bench},
		{"rounds", "a part of bench: ours and the peers in turn: 15 minutes", []string{"redis"}, rounds},
		{"growth", "a part of bench: how the cost grows with waiters, held keys and processes: 5 minutes", []string{"redis"}, growth},
		{"lowest", "the library's tests with the lowest versions that go.mod allows: 5 minutes", []string{"redis"}, lowest},
		{"cross", "the command and the library, compiled for each platform of a release: 5 minutes", nil, cross},
		{"long", "the tests named TestLong: 2 minutes; with -weekly those named TestWeekly as well: 10 minutes", []string{"redis", "postgres", "mysql", "etcd", "oldest-etcd", "fleets", "shells"}, long},
		{"short", "the command, the examples, the benchmarks, and the short forms of the folders of internal/verify: 3 minutes", []string{"redis", "postgres", "mysql", "etcd", "oldest-etcd", "rabbitmq", "promtool", "spin", "chromium", "fleets", "shells"}, short},
		{"check", "what make check runs: short forms of all that is named here: 6 minutes", []string{"redis", "postgres", "mysql", "etcd", "oldest-etcd", "rabbitmq", "promtool", "spin", "chromium", "fleets", "shells"}, check},
		{"failed", "the tests that failed, and why, from what go test has printed, on the standard input", nil, failed},
		{"screenshots", "the pictures of the page for operators in docs/, taken in Chromium", []string{"chromium"}, screenshots},
		{"release", "what docs/development.md says of releasing, tried with a module proxy in a folder: 3 minutes", nil, release},
	}
}

func sim(f *flag.FlagSet) runFunc {
	seeds := f.Int("seeds", 5000, "how many seeds for each backend")
	short := f.Bool("short", false, "72 seeds in all, and what finds out when the simulation is broken")
	return func(ctx context.Context, c console) error {
		if *short {
			c.say("the simulation: 72 seeds, and what finds out when it is broken")
			return c.test(ctx, slices.Concat(goTest, exceptWeekly, []string{verify + "simulation"})...)
		}
		return c.with(fmt.Sprint("ONERUN_SIM_SEEDS=", *seeds)).test(ctx, "-timeout", "60m", "-run", "Simulation", verify+"simulation")
	}
}

func mutants(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		return c.run(ctx, "go", append([]string{"run", verify + "mutants"}, c.args...)...)
	}
}

func model(f *flag.FlagSet) runFunc {
	short := f.Bool("short", false, "search a few of them")
	return func(ctx context.Context, c console) error {
		var args []string
		if *short {
			args = []string{"short"}
		}
		return c.run(ctx, verify+"model/check.sh", args...)
	}
}

func cron(f *flag.FlagSet) runFunc {
	ticks := f.Int("ticks", 120, "how many ticks each job has")
	return func(ctx context.Context, c console) error {
		return c.with(fmt.Sprint("ONERUN_CRON_TICKS=", *ticks)).
			test(ctx, "-race", "-run", "Test(Long|Weekly)_(p|schedulerP)rocesses(RunEachTickOnce|MeetSeveralFaults)",
				"-timeout", "30m", "./middleware/cron", "./middleware/asynq/scheduler")
	}
}

func soak(f *flag.FlagSet) runFunc {
	long := f.Duration("for", 10*time.Minute, "how long it runs")
	seed := f.Uint64("seed", 1, "what chooses the faults")
	return func(ctx context.Context, c console) error {
		if err := os.RemoveAll("bin/_artifacts"); err != nil {
			return err
		}
		if err := os.MkdirAll("bin", 0o755); err != nil {
			return err
		}
		return c.with(fmt.Sprint("ONERUN_SOAK=", *long), fmt.Sprint("ONERUN_SOAK_SEED=", *seed)).
			test(ctx, "-v", "-count=1", "-timeout", "0", "-artifacts", "-outputdir", "bin", "-run", "TestSoak", verify+"soak")
	}
}

func failover(f *flag.FlagSet) runFunc {
	n := f.Int("n", 200, "how many rounds each store has")
	md := f.Bool("md", false, "write the table into docs/reliability.md")
	return func(ctx context.Context, c console) error {
		c = c.with(fmt.Sprint("ONERUN_FAILOVER=", *n))
		if *md {
			c = c.with("ONERUN_FAILOVER_MD=1")
		}
		return c.test(ctx, "-v", "-count=1", "-timeout", "0", "-run", "TestFailover_table", verify+"failover")
	}
}

// gozero is a module outside of the workspace.
func gozero(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		return c.with("GOWORK=off").sh(ctx, "cd middleware/http/frameworks/gozero && go test -count=1 .")
	}
}

func brokers(f *flag.FlagSet) runFunc {
	n := f.Int("n", 40, "how many messages each fault has")
	md := f.Bool("md", false, "write the table into docs/watermill.md")
	return func(ctx context.Context, c console) error {
		c = c.with(fmt.Sprint("ONERUN_BROKERS=", *n))
		if *md {
			c = c.with("ONERUN_BROKERS_MD=1")
		}
		return c.test(ctx, "-count=1", "-timeout", "20m", verify+"brokers")
	}
}

func load(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		return c.with("ONERUN_LOAD=1").test(ctx, "-v", "-timeout", "30m", "-run", "TestLoad", verify+"load")
	}
}

// servers shows the names of the tests and what failed, and then the page that they have written.
func servers(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		c.say("fetching servers into bin/servers")
		if err := c.run(ctx, verify+"servers/fetch.sh"); err != nil {
			return err
		}
		list, err := os.ReadFile("bin/servers/list")
		if err != nil {
			return err
		}
		c = c.with("ONERUN_SERVERS=all", "ONERUN_SERVERS_REPORT=1",
			fmt.Sprintf("ONERUN_REDIS_SERVERS=%s,%s", list, os.Getenv("ONERUN_REDIS_SERVERS")))
		return all(
			func() error { return c.sh(ctx, "go test -v -count=1 -timeout 60m "+verify+"servers >servers.log 2>&1") },
			func() error {
				return c.sh(ctx, "grep -E '^ {8,16}--- |^( *--- FAIL|FAIL|ok|panic)' servers.log; cat docs/servers.md")
			},
		)
	}
}

func scale(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		c = c.with("ONERUN_SCALE=1")
		if err := c.test(ctx, "-count=1", "-timeout", "30m", verify+"scale"); err != nil {
			return err
		}
		if err := c.test(ctx, "-count=1", "-timeout", "30m", "-run", "TestFleet", verify+"simulation"); err != nil {
			return err
		}
		return c.run(ctx, "cat", "docs/scale.md")
	}
}

func fleets(f *flag.FlagSet) runFunc {
	long := f.Duration("for", 30*time.Second, "how long each library runs")
	return func(ctx context.Context, c console) error {
		return c.with(fmt.Sprint("ONERUN_FLEET=", *long)).
			test(ctx, "-v", "-count=1", "-timeout", "60m", "-run", "^TestFleets_", "./bench")
	}
}

func screenshots(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		return c.with("ONERUN_SCREENSHOTS=1").test(ctx, "-count=1", "-run", "TestScreenshots", verify+"browser")
	}
}

func release(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		return c.test(ctx, "-tags", "release", "-run", "^TestRelease_", "-v", "./cmd/onerun")
	}
}
