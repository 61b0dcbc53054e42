package guard

// push is how a line is told that its key may be free. Guard.mu guards it.
type push struct {
	guard *Guard
	line  *line
	heard bool   // the Notifier listens by now
	over  bool   // the line is gone
	end   func() // ends it; nil until it has begun
}

// start begins to listen. It must not be called under Guard.mu, as the Notifier may call back at once.
func (p *push) start(n Notifier, key string) {
	end := n.Notify(key, p.ring)
	p.guard.mu.Lock()
	p.end = end
	over := p.over
	p.guard.mu.Unlock()
	if over {
		end()
	}
}

// ring is called when the key may be free.
func (p *push) ring() {
	g := p.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.over {
		return
	}
	p.heard = true
	p.line.ring(g)
}

// listening reports whether the Notifier listens by now. Until then, who waits has to look for himself.
func (p *push) listening() bool { return p != nil && p.heard }
