package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"
)

const (
	say = "say" // the word of lines that the parent prints
	out = "out" // the word of lines that go to Crew.Out
)

// A Parent is how a child process talks to the one that has started it. It is safe for concurrent
// use, but one Ask at a time.
type Parent struct {
	ctx     context.Context // as Join returns it
	answers chan string
	mu      sync.Mutex // one line at a time
}

// Join reads what the parent has set for this process into settings. It returns false if this
// process is nobody's child. The context ends when the parent has ended or wants no more; the
// process is ended soon after, whether or not it has heeded that.
func Join(settings any) (context.Context, *Parent, bool) {
	text, ok := os.LookupEnv(settingsEnv)
	if !ok {
		return nil, nil, false
	}
	if err := json.Unmarshal([]byte(text), settings); err != nil {
		panic(fmt.Sprintf("stage: %s: %v", settingsEnv, err))
	}
	signal.Ignore(os.Interrupt) // Ctrl-C goes to the parent as well, which ends us in good order
	ctx, cancel := context.WithCancel(context.Background())
	p := &Parent{ctx: ctx, answers: make(chan string, 1)}
	go p.listen(cancel)
	return ctx, p, true
}

// listen takes the parent's answers, and ends the process when there can be no more.
func (p *Parent) listen(cancel context.CancelFunc) {
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		p.answers <- scanner.Text()
	}
	cancel()
	time.Sleep(endGrace / 2)
	os.Exit(1)
}

// Say has the parent print what this child is doing.
func (p *Parent) Say(format string, args ...any) { p.Tell(say, format, args...) }

// Out returns a writer to the parent's Crew.Out. Each Write must be of one line, or of several
// lines that may be made one.
func (p *Parent) Out() io.Writer { return lines{p} }

type lines struct{ *Parent }

func (l lines) Write(text []byte) (int, error) {
	l.Tell(out, "%s", strings.TrimSuffix(string(text), "\n"))
	return len(text), nil
}

// Tell sends a Line: a word, and the rest.
func (p *Parent) Tell(word, format string, args ...any) {
	rest := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", " ")
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Println(word, rest)
}

// errParentGone is what Ask returns when there is nobody to answer.
var errParentGone = errors.New("stage: the parent process has ended")

// Ask sends a Line and waits for what the parent answers, for as long as there is a parent.
func (p *Parent) Ask(word, format string, args ...any) (string, error) {
	p.Tell(word, format, args...)
	select {
	case answer := <-p.answers:
		return answer, nil
	case <-p.ctx.Done():
		return "", errParentGone
	}
}
