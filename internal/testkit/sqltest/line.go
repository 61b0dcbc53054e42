package sqltest

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A line has connections to a server that can be cut, and on which each reply can take longer.
type line struct {
	delay, dials, replied atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	cuts  int
}

func (l *line) dial(ctx context.Context, network, address string) (net.Conn, error) {
	server, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.dials.Add(1)
	l.mu.Lock()
	l.conns = append(l.conns, server)
	l.mu.Unlock()
	client, end := net.Pipe()
	go func() { _, _ = io.Copy(server, end); _ = server.Close() }()
	go l.replies(end, server)
	return client, nil
}

// keepCutting closes all connections again and again, until ctx ends. It waits for some replies in
// between, so that most calls succeed, however slow the server is.
func (l *line) keepCutting(ctx context.Context) {
	const replies = 20
	for cutAt := int64(replies); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if l.replied.Load() >= cutAt {
			l.cut()
			cutAt = l.replied.Load() + replies
		}
	}
}

// cut closes all connections.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.conns) > 0 {
		l.cuts++
	}
	for _, conn := range l.conns {
		_ = conn.Close()
	}
	l.conns = nil
}

// replies passes on each reply after the delay, until one of the two ends.
func (l *line) replies(client, server net.Conn) {
	type piece struct {
		bytes []byte
		at    time.Time
	}
	pieces := make(chan piece, 1000)
	go func() {
		defer client.Close()
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			_, _ = client.Write(p.bytes)
		}
	}()
	defer close(pieces)
	const greeting = 3 // about what a new connection needs before its first statement
	for reads := 0; ; {
		buffer := make([]byte, 32<<10)
		n, err := server.Read(buffer)
		if err != nil {
			return
		}
		if reads++; reads > greeting {
			l.replied.Add(1)
		}
		pieces <- piece{buffer[:n], time.Now().Add(time.Duration(l.delay.Load()))}
	}
}
