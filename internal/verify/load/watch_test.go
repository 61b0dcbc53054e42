package load_test

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// A watch tells what the machine did to us, so that a lease which was lost can be judged: by how
// much a timer of this process was late at most, and how long the server took at most to answer a
// PING on a connection that nobody else uses.
type watch struct {
	timer, ping time.Duration
	end         chan struct{}
	all         sync.WaitGroup
}

const watchStep = 10 * time.Millisecond

func (p *place) watch() *watch {
	w := &watch{end: make(chan struct{})}
	w.all.Go(func() {
		w.each(func(late time.Duration) { w.timer = max(w.timer, late) })
	})
	w.all.Go(func() {
		w.each(func(time.Duration) {
			sent := time.Now()
			if p.pings.Ping(context.Background()).Err() == nil {
				w.ping = max(w.ping, time.Since(sent))
			}
		})
	})
	return w
}

// each calls f now and then, with how late it is.
func (w *watch) each(f func(late time.Duration)) {
	for {
		select {
		case <-w.end:
			return
		default:
		}
		due := time.Now().Add(watchStep)
		time.Sleep(watchStep) // how late this is is what is measured
		f(time.Since(due))
	}
}

// stop ends it and says what it has seen.
func (w *watch) stop() string {
	close(w.end)
	w.all.Wait()
	return fmt.Sprintf("a timer was late by %v at most, and a PING took %v at most", w.timer.Round(time.Millisecond), w.ping.Round(time.Millisecond))
}
