package redisstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// linger is how long a connection is kept when nobody listens any more: who waits often does not
// wait once.
const linger = 100 * time.Millisecond

// A line is the connection to a node, again and again, for as long as there are topics on it.
type line struct {
	notices *Notices
	node    *redis.Client // nil if any will do
	end     context.CancelFunc
	kick    chan struct{} // there are changes

	// Notices.mu guards what follows.
	topics  map[string]*topic
	changed map[string]struct{} // channels that came or went since the connection last looked
	open    bool                // there is a connection
}

// openLine returns a new line to the node, which is at work until its last topic has gone. n.mu
// must be held.
func (n *Notices) openLine(node *redis.Client) *line {
	ctx, cancel := context.WithCancel(context.Background())
	l := &line{
		notices: n, node: node, end: cancel, kick: make(chan struct{}, 1),
		topics: map[string]*topic{}, changed: map[string]struct{}{},
	}
	n.lines[node] = l
	go l.run(ctx)
	return l
}

// add puts a topic on the line. Notices.mu must be held.
func (l *line) add(t *topic) {
	t.line = l
	l.topics[t.channel] = t
	l.change(t.channel)
}

// remove takes a topic off the line. Notices.mu must be held.
func (l *line) remove(t *topic) {
	t.line, t.live = nil, false
	delete(l.topics, t.channel)
	l.change(t.channel)
	if !l.open {
		l.endIfIdle() // a connection that is being made is of no use any more
	}
}

func (l *line) change(channel string) {
	l.changed[channel] = struct{}{}
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// endIfIdle ends the line if there is no topic on it. Notices.mu must be held.
func (l *line) endIfIdle() {
	if len(l.topics) > 0 {
		return
	}
	if l.notices.lines[l.node] == l { // it may have ended before, and have a successor
		delete(l.notices.lines, l.node)
	}
	l.end()
}

// run makes connections until the line has ended.
func (l *line) run(ctx context.Context) {
	defer l.end()
	for failures := 1; ; failures++ {
		start := time.Now()
		newConn(l).serve(ctx)
		if time.Since(start) > longestRetry {
			failures = 1
		}
		l.broke(ctx)
		if ctx.Err() != nil || !pause(ctx, failures) {
			return
		}
		l.follow(ctx)
	}
}

// broke notes that there is no connection, and that the next has all to ask for.
func (l *line) broke(ctx context.Context) {
	n := l.notices
	if cluster := n.cluster(); cluster != nil && ctx.Err() == nil {
		cluster.ReloadState(context.Background()) // the node may have lost its slots
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	l.open = false
	for channel, t := range l.topics {
		t.live = false
		l.changed[channel] = struct{}{}
	}
	l.endIfIdle()
}

// follow moves the topics to another line whose slot is another node's by now.
func (l *line) follow(ctx context.Context) {
	n := l.notices
	n.mu.Lock()
	topics := slices.Collect(maps.Values(l.topics))
	n.mu.Unlock()
	for _, t := range topics {
		if node, err := n.node(ctx, t.channel); err == nil && node != l.node {
			n.move(t, node)
		}
	}
}

// connected notes that there is a connection.
func (l *line) connected() {
	l.notices.mu.Lock()
	defer l.notices.mu.Unlock()
	l.open = true
	l.endIfIdle() // the last topic has left before it could cancel that
}

// leave ends the line unless a topic has come.
func (l *line) leave() {
	l.notices.mu.Lock()
	defer l.notices.mu.Unlock()
	l.endIfIdle()
}

// takeChanges returns what topic each changed channel has now, nil for none, and whether the line
// has any at all.
func (l *line) takeChanges() (now map[string]*topic, idle bool) {
	l.notices.mu.Lock()
	defer l.notices.mu.Unlock()
	now = make(map[string]*topic, len(l.changed))
	for channel := range l.changed {
		now[channel] = l.topics[channel]
	}
	clear(l.changed)
	return now, len(l.topics) == 0
}
