package guard

import "sync/atomic"

// push is how a waiter is told that its key may be free. The zero value tells nothing.
type push struct {
	woken chan struct{}
	heard atomic.Bool
	end   func()
}

// start begins to listen, if there is a Notifier and it has not begun before.
func (p *push) start(n Notifier, key string) {
	if n == nil || p.end != nil {
		return
	}
	p.woken = make(chan struct{}, 1)
	p.end = n.Notify(key, func() {
		p.heard.Store(true)
		select {
		case p.woken <- struct{}{}:
		default:
		}
	})
}

// listening reports whether the Notifier listens by now. Until then the waiter has to look for itself.
func (p *push) listening() bool { return p.heard.Load() }

func (p *push) stop() {
	if p.end != nil {
		p.end()
	}
}
