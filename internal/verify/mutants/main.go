// Mutants breaks the engine and the backends on purpose, one rule of their design at a time. The
// test that belongs to the rule must detect each mutant. If no test fails when a rule is broken,
// nothing keeps the rule.
//
//	go run ./internal/verify/mutants                                # all
//	go run ./internal/verify/mutants mutant_release_of_any_claim ... # some
//
// It prints a table. It fails if a mutant survives or does not compile, if something other than
// its test detects it, or if the test does not pass without it. Some of the tests need a
// redis-server.
//
// A mutant is a text that occurs exactly once in a source file, and its replacement. It is built
// with go test -overlay, which replaces files, including embedded Lua, for the compiler only. The
// alternative is to keep broken variants of the engine behind build tags. They would be part of
// the source and of the module that users import. A build tag that is set by mistake would then
// ship a broken lock. They would also be copies, which can go stale. An overlay avoids both. If
// the text is not there any more, the run fails, and so does the quick test of this package. Each
// mutant is also built with its name as a build tag. No file uses the tag, but go version -m shows
// it for a binary with a mutant.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	if err := runNamed(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// runNamed runs the mutants with these names, or all if there are none. An interrupt ends the run.
func runNamed(names []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	l, err := newLab(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	return report(ctx, os.Stdout, l, chosen)
}
