package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// fault shows all that it finds, also after a part has failed.
func fault(f *flag.FlagSet) runFunc {
	seeds := f.Int("seeds", defaultWorlds, "how many seeds the worlds have")
	return func(ctx context.Context, c console) error {
		report, err := filepath.Abs("faults.md")
		if err != nil {
			return err
		}
		if err := os.RemoveAll(report); err != nil {
			return err
		}
		on := c.with("ONERUN_FAULTS=all", "ONERUN_FAULTS_REPORT="+report)
		return all(
			func() error { c.say("the simulation: %d seeds", *seeds); return runWorlds(ctx, c, *seeds) },
			func() error {
				c.say("the rules of the engine, each broken on purpose")
				return declaration(mutants).given()(ctx, c)
			},
			func() error {
				c.say("the models of the rules, and with each rule broken")
				return declaration(model).given()(ctx, c)
			},
			func() error {
				c.say("faults of the servers, and the metrics that show them")
				return c.sh(ctx, "go test -race -v -run '^Test((Long|Weekly)_f|F)ault' -timeout 15m ./backend/single ./backend/redlock >fault.log 2>&1")
			},
			func() error {
				return c.sh(ctx, "sed -n 's/^.*fault report: //p' fault.log | sort; grep -E '^( *--- FAIL|FAIL|ok)' fault.log")
			},
			func() error {
				c.say("clocks of etcd servers that are set")
				return c.test(ctx, "-count=1", "-run", "TestServers_whoseClocksAreSet", verify+"etcd")
			},
			func() error {
				c.say("all faults, on real processes")
				return on.sh(ctx, "go test -race -count=1 -timeout 30m "+verify+"faults >faults.log 2>&1")
			},
			func() error {
				return c.sh(ctx, "grep -E '^( *--- FAIL|FAIL|panic)' faults.log || true; cat faults.md")
			},
		)
	}
}

const defaultWorlds = 10_000

func worlds(f *flag.FlagSet) runFunc {
	seeds := f.Int("seeds", defaultWorlds, "how many seeds")
	return func(ctx context.Context, c console) error { return runWorlds(ctx, c, *seeds) }
}

// runWorlds runs the simulation in two processes. A world of redlock has five servers and takes as
// long as three other worlds, so it gets a tenth of the seeds.
func runWorlds(ctx context.Context, c console, seeds int) error {
	if err := c.test(ctx, "-c", "-o", "bin/simulation.test", verify+"simulation"); err != nil {
		return err
	}
	n := max(1, seeds/20)
	simulate := func(name string, first, count int, tests string) error {
		log := fmt.Sprintf("bin/worlds.%s.%d", name, first)
		on := c.with(fmt.Sprint("ONERUN_SIM_FIRST=", first), fmt.Sprint("ONERUN_SIM_SEEDS=", count))
		if err := on.sh(ctx, fmt.Sprintf("bin/simulation.test -test.v -test.timeout 60m -test.run '%s' >%s 2>&1 || { tail -n 300 %s; exit 1; }", tests, log, log)); err != nil {
			return err
		}
		return c.sh(ctx, fmt.Sprintf(`sed -n "s/^.*_test.go:[0-9]*: \(.* runs .*\)/%s, %d seeds from %d on: \1/p" %s`, name, count, first, log))
	}
	backend := func(name string, first, count int) error {
		return simulate(name, first, count, "TestSimulation$/^"+name+"$")
	}
	var two errgroup.Group
	two.Go(func() error {
		if err := backend("single", 0, 9*n); err != nil {
			return err
		}
		return backend("reentrant", 0, 2*n)
	})
	two.Go(func() error {
		if err := backend("redlock", 0, 2*n); err != nil {
			return err
		}
		if err := backend("reentrant", 2*n, 7*n); err != nil {
			return err
		}
		if err := simulate("sharing", 0, 20*n, "TestSharing$"); err != nil {
			return err
		}
		return simulate("quorum", 0, 20*n, "TestSharing_quorum$")
	})
	return two.Wait()
}
