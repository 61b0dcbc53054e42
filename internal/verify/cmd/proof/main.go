// Command proof runs the parts of the proof, in their long forms, and what make check runs of them.
// Run it in the root of a clone:
//
//	go run ./internal/verify/cmd/proof -h            # the parts
//	go run ./internal/verify/cmd/proof soak -h       # the flags of a part
//	go run ./internal/verify/cmd/proof soak -for 1h
//
// It installs what a part needs, as make does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// A part is a part of the proof.
type part struct {
	name, does string
	// needs are the names of what install.sh has to install.
	needs []string
	flags declaration
}

// A declaration declares the flags of a part, and returns the function that runs the part.
type declaration func(f *flag.FlagSet) runFunc

type runFunc func(ctx context.Context, c console) error

// given returns the function of a part whose flags have been given.
func (d declaration) given(args ...string) runFunc {
	f := flag.NewFlagSet("", flag.PanicOnError)
	run := d(f)
	_ = f.Parse(args) // it panics
	return run
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "proof:", err)
		os.Exit(1)
	}
}

// run runs the part that the arguments name. An interrupt ends it.
func run(args []string, out io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(args) == 0 || args[0] == "-h" || args[0] == "-help" || args[0] == "--help" {
		fmt.Fprint(out, "Usage: go run ./internal/verify/cmd/proof PART [flags]\n\nThe parts. PART -h shows the flags of one:\n\n")
		for _, p := range parts() {
			fmt.Fprintf(out, "  %-12s %s\n", p.name, p.does)
		}
		return flag.ErrHelp
	}
	if _, err := os.Stat("go.work"); err != nil {
		return errors.New("run it in the root of a clone, where go.work is")
	}
	for _, p := range parts() {
		if p.name != args[0] {
			continue
		}
		flags := flag.NewFlagSet(p.name, flag.ContinueOnError)
		flags.SetOutput(out)
		start := p.flags(flags)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		record := &recorder{out: out}
		c := console{out: record, args: flags.Args()}
		if len(c.args) > 0 && p.name != "mutants" {
			return fmt.Errorf("%s takes no argument %q", p.name, c.args[0])
		}
		if err := c.install(ctx, p.needs...); err != nil {
			return err
		}
		err := start(ctx, c)
		if err != nil {
			showFailures(out, &record.seen)
		}
		return err
	}
	return fmt.Errorf("no part is called %q: -h shows their names", args[0])
}
