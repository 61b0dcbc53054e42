package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	// longest is how long a test may take to detect a mutant.
	longest = time.Minute
	// longestBuild is how long the build of its package may take. On a new machine, the build
	// includes all imported packages.
	longestBuild = 5 * time.Minute
)

// A lab builds tests with mutants and without, and runs them. It is safe for concurrent use.
type lab struct {
	root string // of the library's module
	dir  string // for build output

	mu sync.Mutex
	// The test binary of each package, without a mutant.
	built map[string]func() (binary string, err error)
	// The result of each test without a mutant, by package and test.
	healthy map[string]func() error
}

func newLab(ctx context.Context) (*lab, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/seed-1795987d/onerun").Output()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	return &lab{
		root: strings.TrimSpace(string(root)), dir: dir,
		built: map[string]func() (string, error){}, healthy: map[string]func() error{},
	}, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// try returns nil if m is detected by its test, and if that test passes without m. took is how
// long the test took to detect m.
func (l *lab) try(ctx context.Context, m mutant) (took time.Duration, err error) {
	if err := l.passes(ctx, m.pkg, m.test); err != nil {
		return 0, fmt.Errorf("without the mutant: %w", err)
	}
	overlay, err := l.overlay(m)
	if err != nil {
		return 0, err
	}
	binary, err := l.build(ctx, m.pkg, m.name, "-overlay", overlay, "-tags", m.name)
	if err != nil {
		return 0, err
	}
	defer os.Remove(binary)
	start := time.Now()
	out, failed := l.run(ctx, binary, m.pkg, m.test)
	return time.Since(start), detected(m.test, out, failed)
}

// passes returns nil if the test passes without a mutant. Each test runs only once, even if it is
// the test of several mutants.
func (l *lab) passes(ctx context.Context, pkg, test string) error {
	l.mu.Lock()
	if l.built[pkg] == nil {
		l.built[pkg] = sync.OnceValues(func() (string, error) { return l.build(ctx, pkg, strings.ReplaceAll(pkg, "/", "_")) })
	}
	build, key := l.built[pkg], pkg+" "+test
	if l.healthy[key] == nil {
		l.healthy[key] = sync.OnceValue(func() error {
			binary, err := build()
			if err != nil {
				return err
			}
			return l.pass(ctx, binary, pkg, test)
		})
	}
	run := l.healthy[key]
	l.mu.Unlock()
	return run()
}

func (l *lab) pass(ctx context.Context, binary, pkg, test string) error {
	out, err := l.run(ctx, binary, pkg, test)
	switch {
	case err != nil:
		return fmt.Errorf("%s does not pass: %w\n%s", test, err, tail(out))
	case !strings.Contains(out, "--- PASS: "+test+" ("):
		return fmt.Errorf("there is no test %s in %s", test, pkg)
	}
	return nil
}

// overlay writes the files that m changes. It also writes the list of these files for go build,
// and returns its path.
func (l *lab) overlay(m mutant) (path string, err error) {
	changed, err := m.apply(l.root)
	if err != nil {
		return "", err
	}
	list := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed {
		at := filepath.Join(l.dir, m.name+"_"+strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			return "", err
		}
		list.Replace[filepath.Join(l.root, file)] = at
	}
	text, err := json.Marshal(list)
	if err != nil {
		return "", err
	}
	path = filepath.Join(l.dir, m.name+".json")
	return path, os.WriteFile(path, text, 0o600)
}

// build builds the tests of a package and returns the binary.
func (l *lab) build(ctx context.Context, pkg, name string, flags ...string) (binary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestBuild)
	defer cancel()
	binary = filepath.Join(l.dir, name+".test")
	// The debug information is not needed.
	args := append([]string{"test", "-c", "-ldflags", "-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// run runs one test. If the test needs a redis-server and there is none, the test fails, rather
// than being skipped. The simulation has more seeds than in its short form, which finds too little.
func (l *lab) run(ctx context.Context, binary, pkg, test string) (out string, err error) {
	// The test's own timeout is shorter. When it ends the test, it prints where the test was.
	ctx, cancel := context.WithTimeout(ctx, longest+10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.run", only(test), "-test.timeout", longest.String())
	cmd.Dir = filepath.Join(l.root, pkg)
	cmd.Env = append(os.Environ(), "ONERUN_REQUIRE_REDIS=1", "ONERUN_SIM_SEEDS=300")
	cmd.WaitDelay = 5 * time.Second // for processes that the test has left behind
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// only returns the pattern for -run that matches this test or subtest alone.
func only(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// detected returns nil if the test detected the mutant in time: the test failed, or its process
// crashed. failed is the error of the process.
func detected(test, out string, failed error) error {
	switch {
	case failed == nil:
		return errors.New("it survived")
	case strings.Contains(out, "panic: test timed out"), errors.Is(failed, context.DeadlineExceeded):
		return fmt.Errorf("%s did not end within %v", test, longest)
	case strings.Contains(out, "--- FAIL: "+test+" ("), strings.Contains(out, "\npanic: "), strings.Contains(out, "\nfatal error: "):
		return nil
	}
	return fmt.Errorf("%s did not fail, but something else did: %w\n%s", test, failed, tail(out))
}

// tail returns the end of a test's output.
func tail(out string) string {
	const most = 2000
	return out[max(0, len(out)-most):]
}
