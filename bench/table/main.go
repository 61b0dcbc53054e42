// Table reads what go test -bench prints from its standard input and prints tables in Markdown:
// for each benchmark its figures beside each other, the median where one was run several times,
// and for each goal of docs/performance.md what was reached.
//
//	go test -run '^$' -bench . . | go run ./table
//
// If a figure is not in the input, the tables say that it is missing, and so is each result that
// depends on it. With -complete that is an error. The exit status of go test shows whether a
// benchmark failed.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	figures := flag.Bool("figures", false, "print no goals")
	complete := flag.Bool("complete", false, "fail if a figure of a goal is missing")
	flag.Parse()
	wanted := goals
	if *figures {
		wanted = nil
	}
	if err := run(os.Stdin, os.Stdout, wanted, *complete); err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, goals []goal, complete bool) error {
	r, err := read(in)
	if err != nil {
		return err
	}
	printFigures(out, r)
	if len(goals) == 0 {
		return nil
	}
	missing := printGoals(out, r, goals)
	if complete && missing > 0 {
		return fmt.Errorf("%d goals have no figure", missing)
	}
	return nil
}
