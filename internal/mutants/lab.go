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
	"time"
)

const (
	// longest is what a test may take to find a mutant out.
	longest = time.Minute
	// longestBuild bounds how long its package takes to build: a machine that has never done so has to build all that it imports.
	longestBuild = 5 * time.Minute
)

// A lab builds tests with mutants and without, and runs them. It is for one caller at a time.
type lab struct {
	root    string           // the module's
	dir     string           // for what is built
	healthy map[string]error // by package and test: what came of it without any mutant
}

func newLab(ctx context.Context) (*lab, error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return nil, err
	}
	return &lab{root: filepath.Dir(strings.TrimSpace(string(mod))), dir: dir, healthy: map[string]error{}}, nil
}

func (l *lab) close() { _ = os.RemoveAll(l.dir) }

// try returns nil if m is found out by its test, which passes without it, and how long the test took to find out.
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
	return time.Since(start), foundOut(m.test, out, failed)
}

// passes returns nil if the test passes as things are.
func (l *lab) passes(ctx context.Context, pkg, test string) error {
	key := pkg + " " + test
	if err, ok := l.healthy[key]; ok {
		return err
	}
	binary := filepath.Join(l.dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	if _, err := os.Stat(binary); err != nil {
		if binary, err = l.build(ctx, pkg, strings.ReplaceAll(pkg, "/", "_")); err != nil {
			return err
		}
	}
	out, err := l.run(ctx, binary, pkg, test)
	if err != nil {
		err = fmt.Errorf("%s does not pass: %w\n%s", test, err, tail(out))
	} else if !strings.Contains(out, "--- PASS: "+test+" (") {
		err = fmt.Errorf("there is no test %s in %s", test, pkg)
	}
	l.healthy[key] = err
	return err
}

// overlay writes the files that m changes and the list of them that go build reads.
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
	args := append([]string{"test", "-c", "-ldflags", "-s -w", "-o", binary}, flags...) // without what a debugger wants
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("it does not compile: %w\n%s", err, out)
	}
	return binary, nil
}

// run runs one test. It fails where there is no redis-server for it, and would be left out.
func (l *lab) run(ctx context.Context, binary, pkg, test string) (out string, err error) {
	ctx, cancel := context.WithTimeout(ctx, longest+10*time.Second) // the test ends itself before, and tells where it was
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.run", only(test), "-test.timeout", longest.String())
	cmd.Dir = filepath.Join(l.root, pkg)
	cmd.Env = append(os.Environ(), "ONERUN_REQUIRE_REDIS=1")
	cmd.WaitDelay = 5 * time.Second // for what the test has started and left behind
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// only returns the pattern for -run that fits one test, or subtest, alone.
func only(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// foundOut returns nil if the test has found a mutant out: if it has failed, or its process has crashed, in time. failed is how the process ended.
func foundOut(test, out string, failed error) error {
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

// tail returns the end of what a test has printed.
func tail(out string) string {
	const most = 2000
	return out[max(0, len(out)-most):]
}
