// Mutants breaks the engine and the stores on purpose, one rule of their design at a time, and has the test that is named for it
// find out: a rule whose breach no test notices is a rule that nobody keeps.
//
//	go run ./internal/mutants                                  # all, as make mutants does
//	go run ./internal/mutants mutant_release_anybodys ...      # some
//
// It prints a table and fails if a mutant survives, if it does not compile, if it was found out by anything but its test, or if that
// test does not pass without it. Some of the tests need a redis-server.
//
// A mutant is a text of the library's source, found exactly once in a file, and what is put in its place. It is built by go test
// -overlay, which shows the compiler other files in place of those on the disk, Lua that is embedded too. The alternative would be
// broken variants in the engine behind build tags. They would be in the source that everyone reads and the module that everyone
// imports, where a tag that is set by mistake ships a broken lock, and they would be copies of code which goes on without them.
// An overlay leaves the library free of all that, and cannot go stale: where the text is not there any more, the run fails,
// and so does the package's own test, which takes no more than a moment. Each is built with its name as a build tag all the same: no file asks
// for it, but go version -m of a binary that has a mutant in it names the mutant.
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

// runNamed runs the mutants of these names, all if there are none. An interrupt ends it.
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
