//go:build unix

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/child"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard"
)

// Run runs the command.
func (r *runCommand) Run(g *globals) error {
	if err := r.checkCodes(); err != nil {
		return r.fail(g, err, exitError)
	}
	if len(r.command) == 0 {
		return r.fail(g, errors.New(`no command: it follows "--", as in: onerun run KEY -- CMD ARGS`), exitError)
	}
	path, err := lookPath(r.command[0])
	if err != nil {
		return r.fail(g, err, notStarted(err))
	}
	servers, err := g.open()
	if err != nil {
		return r.fail(g, err, exitError)
	}
	defer func() { _ = servers.Close() }()
	w := &work{
		run: r, globals: g, path: path, nodes: servers.Nodes(),
		leases: newTracker(), signals: newDispatcher(),
	}
	w.trace = traceparent(os.Getenv("TRACEPARENT"))
	locks, err := guard.New(servers.Locker, append(r.options(g), guard.WithHook(w.leases.hook()))...)
	if err != nil {
		return r.fail(g, asFlag(err), exitError)
	}
	w.locks = locks
	err = w.do()
	closing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = locks.Close(closing) // the key is free within its TTL
	if err == nil && servers.Table != nil {
		_, _ = servers.Table.Clean(closing, cleanUpTo)
	}
	return w.end(err)
}

// cleanUpTo is how many old rows a run deletes from a table of leases, more than it leaves. A
// Locker deletes them after many releases, and a crontab starts a process for each run.
const cleanUpTo = 512

// lookPath is exec.LookPath, and refuses a file in a folder that is not absolute whatever the
// variable GODEBUG says (execerrdot=0).
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil && !filepath.IsAbs(path) && !strings.Contains(name, "/") {
		return "", &exec.Error{Name: name, Err: exec.ErrDot}
	}
	return path, err
}

// fail prints an error, and returns the exit code.
func (r *runCommand) fail(g *globals, err error, code exit) error {
	message{Outcome: "error", Keys: r.Keys, Text: err.Error(), Exit: int(code)}.print(os.Stderr, g.JSON)
	return code
}

// keep is the keeper of a command, if this process was started as one (child.Start). It returns the
// exit code.
func keep() (code int, keeper bool) {
	if len(os.Args) < 2 || os.Args[1] != child.KeeperArg {
		return 0, false
	}
	if err := child.Keep(); err != nil {
		terminal.Line(os.Stderr, "onerun: keeper: %v", err)
		return exitError, true
	}
	return 0, true
}

// notStarted returns the exit code for a command that could not be started.
func notStarted(err error) exit {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exitNoFile
	}
	return exitNoExec
}

// work is one run of the command.
type work struct {
	run     *runCommand
	globals *globals
	path    string
	nodes   int // of a quorum, or 1
	locks   *guard.Guard
	trace   string
	leases  *tracker
	signals *dispatcher
}

// do runs the command under the keys.
func (w *work) do() error {
	ctx, stop := w.signals.waiting()
	defer stop()
	defer w.hintElsewhere()()
	if len(w.run.Keys) > 1 {
		return w.locks.DoAll(ctx, w.run.Keys, w.underLease)
	}
	return w.locks.Do(ctx, w.run.Keys[0], w.underLease)
}

// end says how the run has ended, and returns the exit code.
func (w *work) end(err error) error {
	var code exit
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code) && !errors.Is(err, guard.ErrLost):
		return code
	}
	m := w.run.messageOf(err)
	m.print(os.Stderr, w.globals.JSON)
	return exit(m.Exit)
}

// underLease runs the command. ctx ends when the lease is about to be lost. It returns an exit
// unless the command has succeeded.
func (w *work) underLease(ctx context.Context) error {
	starting, err := w.signals.start(ctx)
	if err != nil {
		return err
	}
	process, err := child.Start(starting, child.Command{
		Path:     w.path,
		Args:     w.run.command,
		Env:      w.environment(ctx),
		Terminal: w.signals.terminal,
		Grace:    w.run.grace(),
	}, w.leases.Left())
	var failed *child.StartError
	switch {
	case errors.As(err, &failed):
		return w.run.fail(w.globals, err, notStarted(failed.Errno))
	case starting.Err() != nil && err != nil:
		return err
	case err != nil:
		return w.run.fail(w.globals, err, exitError)
	}
	w.leases.follow(process.Extend)
	w.signals.forward(process)
	select {
	case <-process.Done():
	case <-ctx.Done():
		w.stop(process, context.Cause(ctx))
		<-process.Done()
	}
	switch result := process.Result(); {
	case result.Signal != 0:
		return exit(exitSignal + int(result.Signal))
	case result.Killed:
		if ctx.Err() == nil {
			return w.run.fail(w.globals, errors.New("the keeper has died, so the command was killed"), exitError)
		}
		return exit(exitError)
	case result.Code != 0:
		return exit(result.Code)
	}
	return nil
}

// stop ends the command because of the cause. If the key stays taken for a while, the command gets
// SIGTERM and its grace period. Otherwise another process may be running by now. Limit never puts
// off the end that the last renewal has set, so the command is dead before the lease ends.
func (w *work) stop(process *child.Process, cause error) {
	grace := w.grace(cause)
	process.Limit(grace)
	if grace > 0 {
		process.Signal(syscall.SIGTERM)
	}
}

// environment returns the environment of the command.
func (w *work) environment(ctx context.Context) []string {
	ids, fences := make([]string, len(w.run.Keys)), make([]string, len(w.run.Keys))
	for i, key := range w.run.Keys {
		ids[i], fences[i] = w.leases.id(key), strconv.FormatUint(w.leases.fence(key), 10)
	}
	if fence := guard.Fence(ctx); fence != 0 { // one for all
		fences = []string{strconv.FormatUint(fence, 10)}
	}
	own := map[string]string{
		"ONERUN_KEY":   strings.Join(w.run.Keys, "\n"),
		"ONERUN_FENCE": strings.Join(fences, "\n"),
		"ONERUN_ID":    strings.Join(ids, "\n"),
		"TRACEPARENT":  w.trace,
	}
	if w.run.Owner != "" {
		own["ONERUN_OWNER"] = w.run.Owner
		delete(own, "ONERUN_ID")
	}
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if name == "ONERUN_ID" || own[name] != "" || (name == redisEnv || name == storeEnv) && !w.run.PassRedis {
			continue
		}
		env = append(env, entry)
	}
	for name, value := range own {
		env = append(env, name+"="+value)
	}
	return env
}
