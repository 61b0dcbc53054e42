package stage

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// settingsEnv is the variable that makes a process a child, and has its settings as JSON.
const settingsEnv = "ONERUN_EXAMPLE_CHILD"

// endGrace is how long children have to end by themselves.
const endGrace = 2 * time.Second

// A Crew is the child processes of a run.
type Crew struct {
	// Lines is what the children say. What they say to people (Parent.Say) is printed and not in
	// it.
	Lines <-chan Line
	// Out takes what the children write to Parent.Out, line by line, until they have ended.
	// Default: standard output.
	Out io.Writer

	run     *Run
	members []*Member
	lines   chan Line
	over    chan struct{} // closed by end: nobody reads lines any more
}

// A Member is one child process.
type Member struct {
	Name string

	crew   *Crew
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	frozen bool
	gone   chan struct{} // closed when the process has ended and is reaped
}

// A Line is what a child says to its parent, with Parent.Tell or Parent.Ask.
type Line struct {
	From *Member
	Word string // what it is about, or Gone
	Rest string
}

// Gone is the word of the last Line of every child: its process has ended, and Rest says how.
const Gone = "gone"

func newCrew(run *Run) *Crew {
	lines := make(chan Line)
	return &Crew{Lines: lines, Out: os.Stdout, run: run, lines: lines, over: make(chan struct{})}
}

// Start starts this program once more, as a child that finds the settings in Join.
func (c *Crew) Start(name string, settings any) (*Member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	m := &Member{Name: name, crew: c, cmd: exec.Command(self), gone: make(chan struct{})}
	m.cmd.Env = append(os.Environ(), settingsEnv+"="+string(text))
	m.cmd.Stderr = os.Stderr
	m.cmd.SysProcAttr = endWithParent()
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	stdout, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	started := make(chan error)
	go m.live(stdout, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	c.members = append(c.members, m)
	return m, nil
}

// live starts the process, passes on what it says, and returns when it has ended.
func (m *Member) live(stdout io.Reader, started chan<- error) {
	// Linux ends the child with the thread that started it, see endWithParent
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := m.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	scanner := bufio.NewScanner(stdout)
	for scanner.Scan() {
		word, rest, _ := strings.Cut(scanner.Text(), " ")
		m.crew.pass(Line{From: m, Word: word, Rest: rest})
	}
	_ = m.cmd.Wait() // how it ended is in ProcessState
	close(m.gone)
	m.crew.pass(Line{From: m, Word: Gone, Rest: m.cmd.ProcessState.String()})
}

// pass passes a line on, unless nobody reads lines any more.
func (c *Crew) pass(l Line) {
	switch l.Word {
	case say:
		c.run.Say(l.From.Name, "%s", l.Rest)
		return
	case out:
		_, _ = fmt.Fprintln(c.Out, l.Rest) // whose Out it is can see for itself that it fails
		return
	}
	select {
	case c.lines <- l:
	case <-c.over:
	}
}

// Answer answers a child's Parent.Ask.
func (m *Member) Answer(text string) error {
	if _, err := fmt.Fprintln(m.stdin, text); err != nil {
		return fmt.Errorf("answer %s: %w", m.Name, err)
	}
	return nil
}

// Kill ends the process as a crash of its machine would (SIGKILL): it cannot clean up. Its Line
// that it is Gone follows.
func (m *Member) Kill() {
	_ = m.cmd.Process.Kill() // fails only if it has ended already
}

// Freeze stops the process in the middle of whatever it is doing (SIGSTOP), as a machine does that
// is moved or short of memory. It can do nothing, nor can it know, until Thaw. See CanFreeze.
func (m *Member) Freeze() error {
	m.frozen = true
	return m.signal(sigFreeze)
}

// Thaw lets a frozen process go on (SIGCONT).
func (m *Member) Thaw() error {
	m.frozen = false
	return m.signal(sigThaw)
}

func (m *Member) signal(s os.Signal) error {
	if err := m.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("send %v to %s: %w", s, m.Name, err)
	}
	return nil
}

// end ends all children and returns when they are gone. It closes their standard input, and kills
// the children that do not end.
func (c *Crew) end() {
	close(c.over)
	for _, m := range c.members {
		_ = m.stdin.Close() // fails only if it is closed already
	}
	late := time.After(endGrace)
	for _, m := range c.members {
		if m.frozen {
			m.Kill()
		}
		select {
		case <-m.gone:
			continue
		case <-late:
			late = time.After(0)
		}
		m.Kill()
		<-m.gone
	}
}
