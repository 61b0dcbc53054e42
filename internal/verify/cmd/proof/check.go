package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
)

// platforms are those of .goreleaser.yaml. The proof and most tests are for Linux.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// others are packages that make test leaves to make check, those first that take longest. They run
// without the race detector: with it, the servers that the examples embed take minutes for a crowd.
var others = []string{
	"./cmd/onerun/...", verify + "system", verify + "browser", verify + "mutants", "./bench/...", "./examples/...",
	verify + "demo/...", verify + "load", verify + "failover", verify + "slow", verify + "river", verify + "jetstream", verify + "brokers", verify + "soak", verify + "servers", verify + "dashboard", verify + "scale",
	"./examples/sqlfence/...", verify + "cmd/...", verify + "history", verify + "page",
}

// longest are the packages whose long tests take longest. They begin first, so that none of them
// runs alone in the end.
var longest = []string{
	verify + "mysql", "./backend/etcd", "./middleware/asynq", "./middleware/cron", verify + "postgres", "./backend", "./backend/redlock",
	"./middleware/asynq/scheduler",
}

// goTest is how tests run that depend on the clock. The demo traces with -tags trace,
// and examples have SQL with -tags sql; -w leaves out what only debuggers read, which links faster.
// make lint runs go vet.
var goTest = []string{"-tags", "trace,sql", "-shuffle=on", "-timeout", "15m", "-ldflags=-w", "-vet=off"}

// fourAtATime is for tests that wait for servers and clocks most of the time. So many packages
// keep two processors busy.
var fourAtATime = []string{"-p", "4"}

// check runs first what does not depend on the clock, two at a time. The simulation takes longest.
func check(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		if err := twoAtATime(ctx, c,
			declaration(sim).given("-short"), compileAll, declaration(cross).given("-short"), declaration(model).given("-short"),
			declaration(lowest).given("-short"), declaration(fuzz).given("-short"), declaration(bench).given("-short"),
		); err != nil {
			return err
		}
		if err := declaration(long).given()(ctx, c); err != nil {
			return err
		}
		return declaration(short).given()(ctx, c)
	}
}

// twoAtATime runs the functions, and prints the output of each in one piece. After an error it
// starts no others.
func twoAtATime(ctx context.Context, c console, run ...runFunc) error {
	two, ctx := errgroup.WithContext(ctx)
	two.SetLimit(2)
	var printing sync.Mutex
	for _, f := range run {
		two.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			var out bytes.Buffer
			err := f(ctx, console{out: &out})
			printing.Lock()
			defer printing.Unlock()
			_, _ = out.WriteTo(c.out)
			return err
		})
	}
	return two.Wait()
}

// exceptWeekly leaves out what only the weekly run does.
var exceptWeekly = []string{"-skip", "^TestWeekly_"}

// long runs without the race detector, unless it is asked for: it triples the processor time, and
// make test has run the same code with it.
func long(f *flag.FlagSet) runFunc {
	race := f.Bool("race", false, "run with the race detector")
	weekly := f.Bool("weekly", false, "run the tests named TestWeekly as well, which make check leaves out")
	return func(ctx context.Context, c console) error {
		c.say("the long tests that make test leaves out")
		packages, err := withLongTests(*weekly)
		if err != nil {
			return err
		}
		args := slices.Concat(goTest, fourAtATime, []string{"-run", longTests(*weekly)})
		if *race {
			args = append(args, "-race")
		}
		if *weekly {
			args = append(args, "-timeout", "60m")
		}
		return c.test(ctx, append(args, packages...)...)
	}
}

// short runs the faults alone: a lease lasts 600 ms there, and another package would use that up.
func short(*flag.FlagSet) runFunc {
	return func(ctx context.Context, c console) error {
		c.say("the command, the examples, the benchmarks, and the proof in its short form")
		if err := compile(ctx, c, append(others, verify+"faults")); err != nil {
			return err
		}
		if err := c.test(ctx, slices.Concat(goTest, fourAtATime, exceptWeekly, others)...); err != nil {
			return err
		}
		c.say("faults, alone")
		return c.test(ctx, slices.Concat(goTest, exceptWeekly, []string{verify + "faults"})...)
	}
}

// compileAll compiles what check runs later.
func compileAll(ctx context.Context, c console) error {
	packages, err := withLongTests(false)
	if err != nil {
		return err
	}
	return compile(ctx, c, slices.Concat(packages, others, []string{verify + "faults"}))
}

// compile compiles tests, so that no compiler runs beside tests that depend on the clock.
func compile(ctx context.Context, c console, packages []string) error {
	c.out = io.Discard
	return c.run(ctx, "go", slices.Concat([]string{"list", "-tags", "trace,sql", "-test", "-deps", "-export"}, packages)...)
}

// longTests matches the names of long tests, or of those and the weekly ones.
func longTests(weekly bool) string {
	if weekly {
		return "^Test(Long|Weekly)_"
	}
	return "^TestLong_"
}

// withLongTests returns the packages that have long tests, or weekly ones, the
// longest first. Packages that make check runs as a whole are only among them for the weekly tests.
func withLongTests(weekly bool) ([]string, error) {
	declared := regexp.MustCompile("(?m)^func " + longTests(weekly)[1:])
	found := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		whole := slices.ContainsFunc([]string{"cmd", "examples", "bench", "internal/verify/demo", "internal/verify/simulation"}, func(folder string) bool {
			return strings.HasPrefix(filepath.ToSlash(path), folder+"/")
		})
		if err != nil || !strings.HasSuffix(path, "_test.go") || whole && !weekly {
			return err
		}
		text, err := os.ReadFile(path)
		if declared.Match(text) {
			found["./"+filepath.ToSlash(filepath.Dir(path))] = true
		}
		return err
	})
	var first []string
	for _, folder := range longest {
		if found[folder] {
			first = append(first, folder)
			delete(found, folder)
		}
	}
	return append(first, slices.Sorted(maps.Keys(found))...), err
}

// lowest runs without the workspace. Everything else runs in it, with the newest versions.
func lowest(f *flag.FlagSet) runFunc {
	short := f.Bool("short", false, "check the types of each module, and run the tests of tracing")
	return func(ctx context.Context, c console) error {
		c = c.with("GOWORK=off")
		if !*short {
			c.say("the library with the lowest versions that go.mod allows")
			return c.test(ctx, "-timeout", "15m", ".", "-skip", "^TestWeekly_", ".", "./guard/...", "./backend/...", "./middleware/...", "./tracing/...")
		}
		c.say("the types are right with the lowest versions, and each module does without the workspace")
		modules, err := modules()
		if err != nil {
			return err
		}
		for _, module := range modules {
			if err := checkTypes(ctx, module, c.env, "-test", "-tags", "trace,sql", "./..."); err != nil {
				return fmt.Errorf("%s: %w", module, err)
			}
		}
		return c.test(ctx, "-short", "-timeout", "5m", "./tracing")
	}
}

// modules returns the folders of the modules of the workspace.
func modules() ([]string, error) {
	work, err := os.ReadFile("go.work")
	if err != nil {
		return nil, err
	}
	_, use, _ := strings.Cut(string(work), "use (")
	use, _, _ = strings.Cut(use, ")")
	return strings.Fields(use), nil
}

// released has the packages that a release compiles for each platform.
var released = []string{
	"./guard/...", "./backend/...", "./middleware/...", "./tracing/...", "./logging/...", "./inspect/...", "./cmd/onerun/...",
}

// cross checks only types in its short form: compiling the standard library and the databases for
// six platforms takes minutes.
func cross(f *flag.FlagSet) runFunc {
	short := f.Bool("short", false, "check the types alone")
	return func(ctx context.Context, c console) error {
		if *short {
			c.say("the types of the command and the library are right on %s", strings.Join(platforms, " "))
		} else {
			c.say("the command and the library compile for %s", strings.Join(platforms, " "))
		}
		for _, platform := range platforms {
			system, processor, _ := strings.Cut(platform, "/")
			env := []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + processor}
			if *short {
				if err := checkTypes(ctx, ".", env, released...); err != nil {
					return fmt.Errorf("%s: %w", platform, err)
				}
			} else if err := c.with(env...).run(ctx, "go", append([]string{"build"}, released...)...); err != nil {
				return err
			}
		}
		return nil
	}
}

// fuzz runs its short form without guidance by coverage, which would compile everything once more.
func fuzz(f *flag.FlagSet) runFunc {
	short := f.Bool("short", false, "10,000 inputs or fewer for each parser")
	long := f.String("for", "1m", "how long, or how many inputs (10000x), for each parser")
	return func(ctx context.Context, c console) error {
		c.say("the parsers of what comes from outside, on random input")
		cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
		if err != nil {
			return err
		}
		root, err := os.Getwd()
		if err != nil {
			return err
		}
		for _, p := range []struct{ folder, inputs string }{
			{"middleware/http", "10000x"}, {"middleware/grpc", "10000x"}, {"tracing", "2000x"}, {"backend", "500x"},
		} {
			binary := filepath.Join(root, "bin", "fuzz.test")
			build, time := []string{"-c", "-fuzz=.", "-o", binary, "./" + p.folder}, *long
			if *short {
				build, time = []string{"-c", "-vet=off", "-ldflags=-w", "-o", binary, "./" + p.folder}, p.inputs
			}
			if err := c.test(ctx, build...); err != nil {
				return err
			}
			targets, err := exec.CommandContext(ctx, binary, "-test.list", "^Fuzz").Output()
			if err != nil || len(targets) == 0 {
				return fmt.Errorf("no fuzz targets in %s: %w", p.folder, err)
			}
			for _, target := range strings.Fields(string(targets)) {
				run := fmt.Sprintf("cd %s && %s -test.run '^$' -test.fuzzcachedir %s -test.fuzz '^%s$' -test.fuzztime %s",
					p.folder, binary, filepath.Join(strings.TrimSpace(string(cache)), "fuzz"), target, time)
				if err := c.sh(ctx, run); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
