package history

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
)

// A Resource is what leases protect. For each key, it remembers the highest fence that it has seen
// in a read or a write, and refuses a lower one. It runs in a process of its own, and it decides
// what came first.
type Resource struct {
	log *Log

	mu      sync.Mutex
	highest map[string]uint64
}

// NewResource returns a Resource that writes each offer to the log.
func NewResource(log *Log) *Resource { return &Resource{log: log, highest: map[string]uint64{}} }

// Serve answers the clients that connect, until the listener is closed. It returns the error of
// the listener.
func (r *Resource) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			lines := bufio.NewScanner(conn)
			for lines.Scan() {
				var e Event
				if json.Unmarshal(lines.Bytes(), &e) != nil {
					return
				}
				if _, err := fmt.Fprintln(conn, r.Offer(e)); err != nil {
					return
				}
			}
		}()
	}
}

// Offer decides on a read or a write of e.Key, as e.Kind says, by e.Holder under e.Fence. It logs
// the decision. A read registers the fence as a write does. Otherwise an older holder could still
// write after it, and the reader's next write would undo that.
func (r *Resource) Offer(e Event) Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.Outcome = Refused
	if e.Fence >= r.highest[e.Key] {
		r.highest[e.Key] = e.Fence
		e.Outcome = OK
	}
	e.Call, e.Return = 0, 0
	e = r.log.Begin(e)
	r.log.End(e)
	return e.Outcome
}

// A Client reads from and writes to a Resource over its socket. It is safe for concurrent use: a
// call waits for the calls before it.
type Client struct {
	mu    sync.Mutex
	conn  net.Conn
	lines *bufio.Scanner
}

// Dial connects to the Resource that listens on the unix socket. Close the Client when it is done
// with.
func Dial(ctx context.Context, socket string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("history: dial the resource: %w", err)
	}
	return &Client{conn: conn, lines: bufio.NewScanner(conn)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Read offers a read under the belief b and reports whether the Resource accepted it. The Resource
// then has registered the fence.
func (c *Client) Read(b *Believer) (accepted bool, err error) { return c.offer(Register, b) }

// Write offers a write under the belief b and reports whether the Resource accepted it. The belief
// need not be live any more: the Resource must refuse a stale one.
func (c *Client) Write(b *Believer) (accepted bool, err error) { return c.offer(Write, b) }

func (c *Client) offer(kind Kind, b *Believer) (accepted bool, err error) {
	offer, err := json.Marshal(Event{
		Kind: kind, Key: b.event.Key, Claim: b.event.Claim, Fence: b.event.Fence,
		Holder: b.Holder(),
	})
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.conn.Write(append(offer, '\n')); err != nil {
		return false, fmt.Errorf("history: offer to %s: %w", kind, err)
	}
	if !c.lines.Scan() {
		return false, fmt.Errorf("history: offer to %s: the resource has gone: %w", kind, c.lines.Err())
	}
	return Outcome(c.lines.Text()) == OK, nil
}
