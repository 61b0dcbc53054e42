package processtest

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// patience is how long a child may take to say something, or to end: it is long because test
// machines stall.
const patience = 60 * time.Second

// A Child is a process with which a test talks: it reads lines, and what it says is the lines that
// it prints. One goroutine at a time may listen to it. When the test ends the child is killed and
// reaped; if the test failed, its last line and what it wrote to standard error are shown. A race
// that the race detector has found in it fails the test.
type Child struct {
	*Process
	t      testing.TB
	stdin  io.WriteCloser
	stdout *text
	stderr *text
}

// Self starts the test binary, with more variables in its environment by which TestMain knows what
// it is to be.
func Self(t testing.TB, env ...string) *Child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	return StartChild(t, cmd)
}

// StartChild starts the command, whose input and output it sets. One that cannot be started fails
// the test.
func StartChild(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	c := &Child{t: t, stdout: newText(), stderr: newText()}
	// The race detector would else have the process sleep for a second when it ends.
	cmd.Env = append(cmd.Environ(), "GORACE="+os.Getenv("GORACE")+" atexit_sleep_ms=0")
	cmd.Stdout, cmd.Stderr = c.stdout, c.stderr
	var err error
	if c.stdin, err = cmd.StdinPipe(); err == nil {
		c.Process, err = Start(cmd)
	}
	if err != nil {
		t.Fatalf("processtest: start %s: %v", cmd.Path, err)
	}
	t.Cleanup(c.end)
	return c
}

// end is the cleanup of every child.
func (c *Child) end() {
	c.Kill()
	wrong := c.stderr.String()
	if strings.Contains(wrong, "WARNING: DATA RACE") {
		c.t.Errorf("processtest: the race detector has found a race in process %d", c.PID())
	}
	if c.t.Failed() {
		said := strings.TrimSpace(c.Said())
		c.t.Logf("processtest: process %d said %q at last, and wrote to standard error:\n%s", c.PID(), said[strings.LastIndexByte(said, '\n')+1:], wrong)
	}
}

// Tell sends the child a line.
func (c *Child) Tell(line string) {
	c.t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		c.t.Fatalf("processtest: tell process %d %q: %v", c.PID(), line, err)
	}
}

// CloseInput ends the child's input, which has no more lines then.
func (c *Child) CloseInput() {
	c.t.Helper()
	if err := c.stdin.Close(); err != nil {
		c.t.Fatalf("processtest: end the input of process %d: %v", c.PID(), err)
	}
}

// Ends waits until the child has ended. The test fails unless it does so by itself and with exit
// code 0, and after a minute.
func (c *Child) Ends() {
	c.t.Helper()
	select {
	case <-c.Done():
		if err := c.Wait(); err != nil {
			c.t.Fatalf("processtest: process %d has ended: %v", c.PID(), err)
		}
	case <-time.After(patience):
		c.t.Fatalf("processtest: process %d has not ended", c.PID())
	}
}

// Next returns the next line that the child says. The test fails if that begins with "fails", if
// the child has ended instead, and after a minute.
func (c *Child) Next() string {
	c.t.Helper()
	return c.next("anything more", time.After(patience))
}

// Says waits for a line that begins so, past all others, and returns the rest of it without the
// blanks around it. The test fails as it does with Next.
func (c *Child) Says(begin string) (rest string) {
	c.t.Helper()
	for over := time.After(patience); ; {
		if rest, ok := strings.CutPrefix(c.next(begin, over), begin); ok {
			return strings.TrimSpace(rest)
		}
	}
}

// next returns the next line, of a child that is to say what.
func (c *Child) next(what string, over <-chan time.Time) string {
	c.t.Helper()
	for {
		ended := c.Ended() // before the look: after it nothing more is said
		if line, ok := c.stdout.line(); ok {
			if strings.HasPrefix(line, "fails") {
				c.t.Fatalf("processtest: process %d %s", c.PID(), line)
			}
			return line
		}
		if ended {
			c.t.Fatalf("processtest: process %d has ended without saying %q: %v", c.PID(), what, c.Wait())
		}
		select {
		case <-c.stdout.more:
		case <-c.Done():
		case <-over:
			c.t.Fatalf("processtest: process %d has not said %q", c.PID(), what)
		}
	}
}

// Said returns all that the child has said so far, also what Next and Says have returned. Each
// line in it ends with a newline.
func (c *Child) Said() string { return c.stdout.String() }
