package redistest

import (
	"strings"
	"time"
)

// Delay delivers each reply, pushes included, d after it came. Replies of a pipeline are
// delayed together, not one after the other. Zero ends it, for waiting replies as well.
func (p *Proxy) Delay(d time.Duration) {
	p.gate.change(func(f *faults) { f.delay[replies] = d })
}

// DelayRequests delivers each request d after it came. Zero ends it.
func (p *Proxy) DelayRequests(d time.Duration) {
	p.gate.change(func(f *faults) { f.delay[requests] = d })
}

// DropReplies swallows the next n replies, to whatever command, handshakes included, and resets
// the connection at each. The server has run the command by then. Pushes are not replies.
func (p *Proxy) DropReplies(n int) {
	p.gate.change(func(f *faults) { f.drop = n })
}

// DropReplyTo does the same for the next n replies to the command ("evalsha", in any case),
// NOSCRIPT and other errors included. Replies to earlier commands of a pipeline are delivered;
// those to later ones are lost with the connection.
func (p *Proxy) DropReplyTo(command string, n int) {
	p.gate.change(func(f *faults) { f.dropTo[strings.ToLower(command)] = n })
}

// DropPushes swallows the next n pub/sub messages and key invalidations, and leaves the
// connection alone. Confirmations of a subscription pass.
func (p *Proxy) DropPushes(n int) {
	p.gate.change(func(f *faults) { f.dropPushes = n })
}

// Dropped is how many replies and pushes were dropped so far, whatever dropped them.
func (p *Proxy) Dropped() int {
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	return p.gate.dropped
}

// HoldReplies keeps all replies inside the proxy until ReleaseReplies.
func (p *Proxy) HoldReplies() {
	p.gate.change(func(f *faults) { f.hold = true })
}

// HoldReplyTo keeps each reply to the command, and what comes after it on its connection, inside
// the proxy until ReleaseReplies.
func (p *Proxy) HoldReplyTo(command string) {
	p.gate.change(func(f *faults) { f.holdTo[strings.ToLower(command)] = true })
}

// ReleaseReplies delivers what HoldReplies and HoldReplyTo kept, and ends both.
func (p *Proxy) ReleaseReplies() {
	p.gate.change(func(f *faults) {
		f.hold = false
		clear(f.holdTo)
	})
}

// GoDark lets nothing through, either way: no bytes, no end of a connection. New connections
// are accepted and never answered. What was sent in the dark arrives after Restore, even if the
// client has left meanwhile, as it does on a network that heals.
func (p *Proxy) GoDark() {
	p.gate.change(func(f *faults) { f.dark = [2]bool{requests: true, replies: true} })
}

// DarkRequests is GoDark towards the server only: replies to earlier requests still arrive.
func (p *Proxy) DarkRequests() {
	p.gate.change(func(f *faults) { f.dark[requests] = true })
}

// DarkReplies is GoDark towards the client only: requests arrive and are executed.
func (p *Proxy) DarkReplies() {
	p.gate.change(func(f *faults) { f.dark[replies] = true })
}

// Restore ends every fault. What waits is delivered, in order.
func (p *Proxy) Restore() {
	p.gate.change(func(f *faults) { *f = noFaults() })
}
