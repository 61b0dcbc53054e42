package history

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// A Log writes the events of one process, each as a line of JSON and at once: what was written
// survives the process. It is safe for concurrent use.
type Log struct {
	process string

	mu     sync.Mutex
	w      io.Writer
	number int
	err    error

	// owner → the ID of the claim that it was granted last: a lease tells its owner only
	owners sync.Map
	// claim → *atomic.Int64: when the last request was sent that was granted, or renewed it
	proven sync.Map
}

// NewLog returns a Log of the process, whose name no other has.
func NewLog(process string, w io.Writer) *Log { return &Log{process: process, w: w} }

// Err returns why something could not be written, if so.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Begin writes e, which begins now unless it says when it began, and returns it with its number,
// for End.
func (l *Log) Begin(e Event) Event {
	if e.Call == 0 {
		e.Call = Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	e.Process, e.Number = l.process, l.number
	l.write(e)
	return e
}

// End writes e again, which has ended, now unless it says when.
func (l *Log) End(e Event) {
	if e.Return == 0 {
		e.Return = Now()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(e)
}

// write must be called with l.mu held.
func (l *Log) write(e Event) {
	line, err := json.Marshal(e)
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	if err != nil && l.err == nil {
		l.err = fmt.Errorf("history: write an event: %w", err)
	}
}

// granted notes that the store has granted the claim of an owner on a request that was sent at an
// instant.
func (l *Log) granted(owner, claim string, sent int64) {
	l.prove(claim, sent)
	l.owners.Store(owner, claim)
}

// claimOf returns the ID of the claim that an owner was granted last.
func (l *Log) claimOf(owner string) string {
	claim, _ := l.owners.Load(owner)
	id, _ := claim.(string)
	return id
}

// prove notes that the store has granted or renewed the claim on a request that was sent at an
// instant.
func (l *Log) prove(claim string, sent int64) {
	at, _ := l.proven.LoadOrStore(claim, new(atomic.Int64))
	for last := at.(*atomic.Int64); ; {
		was := last.Load()
		if was >= sent || last.CompareAndSwap(was, sent) {
			return
		}
	}
}

// deadline returns until when the claim may be believed in, or 0 if the store has not granted it.
func (l *Log) deadline(claim string, ttl time.Duration) int64 {
	at, ok := l.proven.Load(claim)
	if !ok {
		return 0
	}
	return at.(*atomic.Int64).Load() + int64(ttl-Margin(ttl))
}

// Margin is what is taken off a lease's validity by the contract: a percent of the TTL for clocks
// that drift, and 20 ms for late timers. It is written here once more so that an engine which
// keeps to another one is found out.
func Margin(ttl time.Duration) time.Duration { return ttl/100 + 20*time.Millisecond }

// Read returns the events of a log in the order in which they began. A last line that a killed
// process has not finished is left out.
func Read(r io.Reader) ([]Event, error) {
	var all []Event
	at := map[string]int{} // where an event of a process is in all
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("history: read a log: %w", err)
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("history: read a log: %w in %q", err, line)
		}
		id := fmt.Sprint(e.Process, "#", e.Number)
		if i, ok := at[id]; ok {
			all[i] = e
			continue
		}
		at[id] = len(all)
		all = append(all, e)
	}
}
