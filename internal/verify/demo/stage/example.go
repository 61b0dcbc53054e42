package stage

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The exit codes of an example.
const (
	exitKept        = 0
	exitBroken      = 1 // the figures in the database are not those promised
	exitNotRun      = 2 // bad flags, no Redis, or something else kept it from coming to a result
	exitInterrupted = 130
)

// An Example is a program that shows what a guard is for.
type Example struct {
	Name string
	// About is what -h says above the flags.
	About string
	// Flags, if not nil, adds flags of its own.
	Flags func(*flag.FlagSet)
	// Check, if not nil, says what is wrong with its flags, once all are known.
	Check func() error
	// Buckets are those of the database.
	Buckets []string
	// Play runs it and returns the figures, read back from the database. It must end soon after
	// ctx.
	Play func(ctx context.Context, run *Run) (*Table, error)
}

// Main is the program, but for os.Exit: it returns the exit code. All child processes have ended
// when it returns.
func (e Example) Main(args []string) int {
	flags, err := e.parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitKept
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v (-h for help)\n", e.Name, err)
		return exitNotRun
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once

	kept, err := e.perform(ctx, flags)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted\n", e.Name)
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", e.Name, err)
		return exitNotRun
	case !kept:
		return exitBroken
	}
	return exitKept
}

// perform runs the example and prints its table. It reports whether all promises were kept.
func (e Example) perform(ctx context.Context, flags flags) (kept bool, err error) {
	run, err := e.newRun(ctx, flags)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, run.end()) }()
	table, err := e.Play(ctx, run)
	if err != nil || ctx.Err() != nil {
		return false, err
	}
	fmt.Printf("\n%s\n", table)
	switch {
	case table.Kept():
		fmt.Println("The promise was kept.")
	case run.Guarded:
		fmt.Println("THE PROMISE WAS BROKEN, although the guard was on.")
	default:
		fmt.Println("THE PROMISE WAS BROKEN: this is what happens without the guard (-guard=off).")
	}
	if flags.page != "" {
		fmt.Println("The page for operators stays until Ctrl-C.")
		<-ctx.Done()
	}
	return table.Kept(), nil
}

// flags are what all examples can be told.
type flags struct {
	guarded  onOff
	backend  backendName
	redis    addresses
	database string
	page     loopback
}

func (e Example) parse(args []string) (flags, error) {
	f := flags{guarded: true, backend: "single"}
	set := flag.NewFlagSet(e.Name, flag.ContinueOnError)
	set.SetOutput(io.Discard) // a mistake is answered with one line, not with all of the help
	set.Var(&f.guarded, "guard", "run under the guard, or show what happens without it: `on|off`")
	set.Var(&f.backend, "backend", "keep the leases in this one of Onerun's backends: `single|reentrant|redlock`")
	set.Var(&f.redis, "redis", "use this Redis, `host:port`, or for redlock three or more, with commas between them;\n"+
		"after an hour nothing is left there but fence counters, and which replica ran each draw of lottery (default: embedded)")
	set.StringVar(&f.database, "db", "", "keep the database in this new `file` (default: it is removed)")
	set.Var(&f.page, "ui", "serve the page for operators at this `host:port`, until Ctrl-C")
	if e.Flags != nil {
		e.Flags(set)
	}
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		e.help(set)
		return f, err
	}
	if err == nil && set.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	if err == nil {
		err = f.redis.suit(f.backend)
	}
	if err == nil && e.Check != nil {
		err = e.Check()
	}
	return f, err
}

func (e Example) help(set *flag.FlagSet) {
	fmt.Printf("%s\n\nFlags:\n", strings.TrimSpace(e.About))
	set.SetOutput(os.Stdout)
	set.PrintDefaults()
	fmt.Printf("\nExit codes: %d the promise was kept, %d it was broken, %d it could not be run.\n",
		exitKept, exitBroken, exitNotRun)
}

// onOff is a flag that is on or off. It implements flag.Value.
type onOff bool

func (v *onOff) String() string {
	if *v {
		return "on"
	}
	return "off"
}

func (v *onOff) Set(s string) error {
	if s != "on" && s != "off" {
		return errors.New("must be on or off")
	}
	*v = s == "on"
	return nil
}
