package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A console runs commands in the root of the clone, and shows what they print.
type console struct {
	out io.Writer
	// args are the arguments after the flags.
	args []string
	// env has variables for all commands.
	env []string
}

// required makes a test fail, instead of being skipped, if it lacks a program. The race detector
// would let each test binary sleep for a second at its end. GOGC=200 saves a tenth of the processor
// time.
var required = []string{
	"ONERUN_REQUIRE_REDIS=1", "ONERUN_REQUIRE_POSTGRES=1", "ONERUN_REQUIRE_MYSQL=1", "ONERUN_REQUIRE_ETCD=1", "ONERUN_REQUIRE_OLDEST_ETCD=1", "ONERUN_REQUIRE_RABBITMQ=1",
	"ONERUN_REQUIRE_CHROMIUM=1", "ONERUN_REQUIRE_FLEETS=1", "ONERUN_REQUIRE_SHELLS=1", "GORACE=atexit_sleep_ms=0", "GOGC=200",
}

// with returns a console whose commands also have the variables.
func (c console) with(env ...string) console {
	c.env = append(c.env[:len(c.env):len(c.env)], env...)
	return c
}

// say prints a headline.
func (c console) say(format string, args ...any) {
	fmt.Fprintf(c.out, "== "+format+"\n", args...)
}

// run runs a command. When the context ends, it interrupts the command, and kills it after ten
// seconds.
func (c console) run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	cmd.Env = append(append(os.Environ(), required...), c.env...)
	if root, err := os.Getwd(); err == nil { // install.sh puts promtool into bin
		cmd.Env = append(cmd.Env, "PATH="+os.Getenv("PATH")+string(os.PathListSeparator)+filepath.Join(root, "bin"))
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args...), " "), err)
	}
	return nil
}

// sh runs a script of the shell, which ends at the first command that fails.
func (c console) sh(ctx context.Context, script string) error {
	return c.run(ctx, "sh", "-ec", script)
}

// test runs go test with the arguments.
func (c console) test(ctx context.Context, args ...string) error {
	return c.run(ctx, "go", append([]string{"test"}, args...)...)
}

// install installs what tests need.
func (c console) install(ctx context.Context, names ...string) error {
	if len(names) == 0 {
		return nil
	}
	return c.run(ctx, "internal/verify/install.sh", names...)
}

// all runs each of the functions, also after one has failed, and returns the first error.
func all(run ...func() error) (first error) {
	for _, f := range run {
		if err := f(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
