package main

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
)

var (
	failedTest    = regexp.MustCompile(`^ *--- FAIL: (\S+)`)
	failedPackage = regexp.MustCompile(`^FAIL\t(\S+)(.*)$`)
	// reason begins what a failure without a name says: of a panic, a race or a compiler.
	reason = regexp.MustCompile(`^(panic: |fatal error: |WARNING: DATA RACE|# )`)
	// logged is what servers and clients print, which hides the reasons.
	logged = regexp.MustCompile(`^ *[0-9]+:[A-Z] |^ *\{"level":|^redis: `)
	ended  = regexp.MustCompile(`^(=== |--- PASS|--- SKIP|PASS|FAIL$|ok |== |\?   )`)
)

const (
	linesOfTest = 12
	linesOfAll  = 60
)

// failures reads what go test has printed. It returns the reasons why tests have failed, shortened,
// and the names of these tests with their packages.
func failures(output io.Reader) (reasons, names []string) {
	var tests []string
	left := 0 // how many lines the reason may still have
	take := func(line string) {
		if len(reasons) < linesOfAll {
			reasons = append(reasons, line)
		}
	}
	known := map[string]bool{}
	name := func(line string) {
		if !known[line] {
			known[line] = true
			names = append(names, line)
		}
	}
	for lines := bufio.NewReader(output); ; {
		line, err := lines.ReadString('\n')
		line = strings.TrimRight(line, "\n")
		switch test, pkg := failedTest.FindStringSubmatch(line), failedPackage.FindStringSubmatch(line); {
		case test != nil:
			tests, left = append(tests, test[1]), linesOfTest
			take(line)
		case pkg != nil:
			for _, test := range tests {
				name(pkg[1] + " " + test)
			}
			if tests == nil {
				name(pkg[1] + pkg[2])
			}
			tests, left = nil, 0
		case reason.MatchString(line):
			left = linesOfTest
			take(line)
		case ended.MatchString(line):
			left = 0
		case left > 0 && strings.TrimSpace(line) != "" && !logged.MatchString(line):
			left--
			take(line)
		}
		if err != nil {
			for _, test := range tests { // of a binary that ran without go test
				name(test)
			}
			return reasons, names
		}
	}
}

// showFailures prints the names last, since CI shows only the end of what a run prints.
func showFailures(out io.Writer, output io.Reader) {
	reasons, names := failures(output)
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(out, "== why tests failed:")
	for _, line := range reasons {
		fmt.Fprintln(out, "|", line)
	}
	fmt.Fprintln(out, "== what failed:")
	for _, line := range names {
		fmt.Fprintln(out, "|", line)
	}
}

func failed(*flag.FlagSet) runFunc {
	return func(_ context.Context, c console) error {
		showFailures(c.out, os.Stdin)
		return nil
	}
}

// A recorder keeps what it passes on.
type recorder struct {
	out  io.Writer
	mu   sync.Mutex
	seen bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Write(p)
	return r.out.Write(p)
}
