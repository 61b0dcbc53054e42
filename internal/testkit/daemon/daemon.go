// Package daemon runs servers of databases for tests: each in a folder of its own, and not as root.
package daemon

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// Patience is how long a server may take to start or to stop: test machines stall.
const Patience = 30 * time.Second

// shown is how many lines of the log of a server a failed test prints.
const shown = 30

// A Daemon is a server and its folder, from RunFor until the test ends.
type Daemon struct {
	Name string    // of the package of tests, in messages
	Bin  string    // the folder of the programs of Command
	User string    // runs the server in the place of root
	Stop os.Signal // ends the server with its clients
	Thaw func()    // lets a frozen server go on

	Env      []string      // of the commands, or nil for that of the test
	Patience time.Duration // how long it may take to start, or 0 for the constant

	Dir     string // with the data, the socket and the log
	Process *processtest.Process
}

// RunFor makes the folder and starts a server. It stops the server when the test ends, and shows
// the end of its log if the test failed.
func (d *Daemon) RunFor(t testing.TB, start func() error) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(d.log())
			lines := bytes.SplitAfter(log, []byte("\n"))
			t.Logf("%s: the end of the log of the server:\n%s", d.Name, bytes.Join(lines[max(0, len(lines)-shown):], nil))
		}
		if err := d.end(); err != nil {
			t.Errorf("%s: stop: %v", d.Name, err)
		}
	})
	err := d.makeDir()
	if err == nil {
		err = start()
	}
	if err != nil {
		t.Fatalf("%s: start: %v", d.Name, err)
	}
}

// Data returns the folder of the data, which a program of the server makes.
func (d *Daemon) Data() string { return filepath.Join(d.Dir, "data") }

func (d *Daemon) log() string { return filepath.Join(d.Dir, "log") }

// makeDir makes the folder of the server. The path of a socket has at most 107 bytes, which those
// of t.TempDir can exceed.
func (d *Daemon) makeDir() (err error) {
	d.Dir, err = os.MkdirTemp("", "db")
	return err
}

// Command returns a command of the server, or another program, as the user of the server.
func (d *Daemon) Command(program string, args ...string) (*exec.Cmd, error) {
	as, err := d.giveAway()
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(program) {
		program = filepath.Join(d.Bin, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = d.Dir, d.Env, as
	return cmd, nil
}

// Run runs a program to its end.
func (d *Daemon) Run(program string, args ...string) error {
	cmd, err := d.Command(program, args...)
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return nil
}

// Serve starts the server, and returns when ready returns nil, or is not going to.
func (d *Daemon) Serve(ready func() error, program string, args ...string) error {
	server, err := d.Command(program, args...)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	if d.Process, err = processtest.Start(server); err != nil {
		return err
	}
	for deadline := time.Now().Add(cmp.Or(d.Patience, Patience)); ; time.Sleep(10 * time.Millisecond) {
		err := ready()
		switch {
		case err == nil:
			return nil
		case d.Process.Ended():
			return fmt.Errorf("it ended: %w", d.Process.Wait())
		case time.Now().After(deadline):
			return err
		}
	}
}

// end stops the server, with its clients, and removes the folder.
func (d *Daemon) end() error {
	if d.Process != nil {
		d.Thaw()
		_ = d.Process.Signal(d.Stop) // fails only if it has ended
		select {
		case <-d.Process.Done():
		case <-time.After(Patience):
			d.Process.Kill()
		}
	}
	return os.RemoveAll(d.Dir)
}

// giveAway gives the folder to the user of the server, because servers do not run as root.
func (d *Daemon) giveAway() (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	to, err := user.Lookup(d.User)
	if err != nil {
		if to, err = user.Lookup("nobody"); err != nil {
			return nil, err
		}
	}
	uid, err := strconv.ParseUint(to.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(to.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(d.Dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}
