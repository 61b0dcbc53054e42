// Waterfall draws spans that OpenTelemetry's stdouttrace has written as a picture: what ran when,
// below what, for how long, and what links to what.
//
//	go run ./internal/verify/demo/coupon -trace -trace-file spans.jsonl
//	go run ./internal/verify/demo/waterfall -trace 4bf92f35 spans.jsonl > trace.svg
//
// It reads standard input where no file is named. The picture is an SVG without scripts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "waterfall: %v\n", err)
		os.Exit(2)
	}
}

// maxSpans is how many make a picture that can be read.
const maxSpans = 200

// run is the program.
func run(args []string, in io.Reader, out io.Writer) error {
	set := flag.NewFlagSet("waterfall", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	id := set.String("trace", "", "draw the trace whose `ID` begins so, and those that it links to or that link to it (default: all)")
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			set.SetOutput(out)
			fmt.Fprintln(out, "waterfall [-trace ID] [FILE] draws the spans of a file, or of standard input, as an SVG")
			set.PrintDefaults()
		}
		return err
	}
	switch set.NArg() {
	case 0:
	case 1:
		file, err := os.Open(set.Arg(0))
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	default:
		return fmt.Errorf("unexpected argument %q", set.Arg(1))
	}
	all, err := spans.Read(in)
	if err != nil {
		return err
	}
	if *id != "" {
		all = around(all, *id)
	}
	switch {
	case len(all) == 0 && *id != "":
		return fmt.Errorf("-trace %s: there is none", *id)
	case len(all) == 0:
		return errors.New("there are no spans")
	case len(all) > maxSpans:
		return fmt.Errorf("%d spans are too many for one picture, of at most %d: choose a trace with -trace ID", len(all), maxSpans)
	}
	_, err = io.WriteString(out, newPicture(all).String())
	return err
}
