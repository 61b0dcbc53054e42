package postgres

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/backend/internal/contain"
	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Subscriber = (*Locker)(nil)

const (
	// pollEvery is how often a Locker without notifications looks at the keys of its subscribers.
	pollEvery = 100 * time.Millisecond
	// lookEvery is how often one with notifications does: one can be missing.
	lookEvery = time.Second
	// markFor is for how long a key is marked, so that its releases are notified, and markEvery how
	// often that is repeated.
	markFor   = 45 * time.Second
	markEvery = 15 * time.Second
	// lookWithin bounds a statement of the subscriber.
	lookWithin = 2 * time.Second
	// linger is how long a listener stays connected without subscriptions.
	linger = 500 * time.Millisecond
	// reconnectAfter is the pause before a listener that has ended is called again.
	reconnectAfter = 500 * time.Millisecond
)

// A ListenFunc waits for notifications on a connection of its own, which must not go through a
// pooler in transaction mode. It sends LISTEN for the channel, calls begun, and then calls notify
// with the payload of each notification. It returns when ctx has ended or the connection is lost.
// begun and notify do not block.
type ListenFunc func(
	ctx context.Context, channel string, begun func(), notify func(payload string),
) error

// WithListener sets how the Locker waits for notifications (NOTIFY) of releases. It calls listen
// while there are waiters, in one goroutine, and again after it has returned. The documentation
// has the function for pgx; with lib/pq, use pq.NewListener. guard.New refuses nil. Without a
// listener, or while it is not connected, the Locker looks at the keys of waiters ten times a
// second, by one statement for all of them. With a listener, it does so once a second: no release
// waits for its notification, which can fail. Defaults to none.
func WithListener(listen ListenFunc) Option {
	return func(l *Locker) {
		if listen == nil {
			l.wrong = &driver.SettingError{Setting: "WithListener", Reason: "must not be nil"}
		}
		l.subscriber.listen = listen
	}
}

// A subscriber calls the subscribers of keys. Its goroutines run while there are subscriptions.
type subscriber struct {
	locker *Locker
	listen ListenFunc    // or nil
	change chan struct{} // has one element if there is something to do

	mu        sync.Mutex
	keys      map[string]*subscribedKey // by payload
	running   bool
	listening bool
}

// A subscribedKey is a key with its subscriptions.
type subscribedKey struct {
	key     string
	wakes   map[*func()]struct{}
	fresh   map[*func()]struct{} // those that were not called since they have begun
	version int64                // when it was last looked at, or -1
	marked  time.Time            // when it was last marked
}

// Subscribe implements driver.Subscriber. All subscriptions of a Locker share a statement or a
// connection, see WithListener.
func (l *Locker) Subscribe(key, _ string, notify func(in time.Duration)) (stop func()) {
	wake, s := func() { notify(0) }, &l.subscriber
	if l.wrong != nil {
		return func() {}
	}
	payload, me := payload(key), &wake
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys == nil {
		s.keys, s.change = map[string]*subscribedKey{}, make(chan struct{}, 1)
	}
	k := s.keys[payload]
	if k == nil {
		k = &subscribedKey{
			key: key, wakes: map[*func()]struct{}{}, fresh: map[*func()]struct{}{}, version: -1,
		}
		s.keys[payload] = k
	}
	k.wakes[me], k.fresh[me] = struct{}{}, struct{}{}
	if !s.running {
		s.running = true
		go s.run()
	}
	s.signal()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(k.wakes, me)
		delete(k.fresh, me)
		if len(k.wakes) == 0 && s.keys[payload] == k {
			delete(s.keys, payload)
			s.signal()
		}
	}
}

func (s *subscriber) signal() {
	select {
	case s.change <- struct{}{}:
	default:
	}
}

// run serves subscriptions until there are none. The listener of one round has ended before the
// next one begins.
func (s *subscriber) run() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		var listener sync.WaitGroup
		if s.listen != nil {
			listener.Go(func() { s.keepListening(ctx) })
		}
		s.serve(ctx)
		cancel()
		listener.Wait()
		s.mu.Lock()
		if len(s.keys) == 0 {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// serve looks at the keys, or marks them, until there were no subscriptions for a while.
func (s *subscriber) serve(ctx context.Context) {
	var idleSince, looked time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		s.mu.Lock()
		idle, listening := len(s.keys) == 0, s.listening
		s.mu.Unlock()
		pause := pollEvery
		switch {
		case !idle && listening:
			idleSince = time.Time{}
			s.mark(ctx)
			if time.Since(looked) >= lookEvery {
				s.look(ctx)
				looked = time.Now()
			}
			pause = time.Until(looked.Add(lookEvery))
		case !idle:
			idleSince = time.Time{}
			s.look(ctx)
		case idleSince.IsZero():
			idleSince = time.Now()
		}
		if idle && (s.listen == nil || time.Since(idleSince) >= linger) {
			return
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-s.change:
		}
	}
}

// keepListening calls listen until ctx has ended.
func (s *subscriber) keepListening(ctx context.Context) {
	for ctx.Err() == nil {
		_ = contain.Err(func() error {
			return s.listen(ctx, s.channel(ctx), func() { s.setListening(true) }, s.notify)
		})
		s.setListening(false)
		select {
		case <-ctx.Done():
		case <-time.After(reconnectAfter):
		}
	}
}

// channel returns the channel on which releases are notified. If the table cannot be found now, it
// returns that of the schema public; keys are looked at in any case.
func (s *subscriber) channel(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	p, err := contain.Do(func() (*place, error) { return s.locker.resolve(ctx) })
	if err != nil {
		p = &place{schema: "public", table: s.locker.table}
	}
	return p.channel()
}

// setListening notes whether notifications arrive from now on. All keys are looked at, or marked,
// and all subscribers called: earlier notifications were missed.
func (s *subscriber) setListening(listening bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = listening
	for _, k := range s.keys {
		k.version, k.marked = -1, time.Time{}
		for me := range k.wakes {
			k.fresh[me] = struct{}{}
		}
	}
	s.signal()
}

// notify calls the subscribers of a key.
func (s *subscriber) notify(payload string) {
	s.mu.Lock()
	var calls []func()
	if k := s.keys[payload]; k != nil {
		calls = k.all()
	}
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}

func (k *subscribedKey) all() (calls []func()) {
	for me := range k.wakes {
		calls = append(calls, *me)
	}
	return calls
}

// begun returns the subscribers of the key that are to be called because their subscription has
// begun.
func (k *subscribedKey) begun() (calls []func()) {
	for me := range k.fresh {
		calls = append(calls, *me)
	}
	clear(k.fresh)
	return calls
}

// keysOf returns the keys in JSON.
func keysOf(subscribed []*subscribedKey) string {
	var keys [][]byte
	for _, k := range subscribed {
		keys = append(keys, []byte(k.key))
	}
	text, _ := json.Marshal(keys) // cannot fail
	return string(text)
}

// mark asks for notifications of the keys for which that is due, and calls the subscribers whose
// subscription has begun by that.
func (s *subscriber) mark(ctx context.Context) {
	s.mu.Lock()
	now := time.Now()
	var due []*subscribedKey
	var fresh []map[*func()]struct{}
	for _, k := range s.keys {
		if len(k.fresh) == 0 && now.Sub(k.marked) < markEvery {
			continue
		}
		due = append(due, k)
		fresh = append(fresh, k.fresh)
		k.fresh = map[*func()]struct{}{}
	}
	s.mu.Unlock()
	if len(due) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	err := s.locker.inBackground(ctx, func() error {
		p, err := s.locker.resolve(ctx)
		if err != nil {
			return err
		}
		_, err = s.locker.db.ExecContext(ctx, p.sql.mark, keysOf(due), micros(markFor))
		return err
	})
	s.mu.Lock()
	var calls []func()
	for i, k := range due {
		if err != nil { // the next attempt is made with the next poll
			for me := range fresh[i] {
				if _, ok := k.wakes[me]; ok {
					k.fresh[me] = struct{}{}
				}
			}
			continue
		}
		if k.marked.IsZero() { // a look under way may have called them before the key was marked
			calls = append(calls, k.all()...)
			k.marked = now
			continue
		}
		k.marked = now
		for me := range fresh[i] {
			if _, ok := k.wakes[me]; ok {
				calls = append(calls, *me)
			}
		}
	}
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
	if err != nil {
		time.AfterFunc(pollEvery, s.signal)
	}
}

// look looks at the keys, and calls the subscribers of those that may be free.
func (s *subscriber) look(ctx context.Context) {
	s.mu.Lock()
	var subscribed []*subscribedKey
	for _, k := range s.keys {
		subscribed = append(subscribed, k)
	}
	s.mu.Unlock()
	type seen struct {
		i, version int64
		open       bool
	}
	var all []seen
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	err := s.locker.inBackground(ctx, func() error {
		p, err := s.locker.resolve(ctx)
		if err != nil {
			return err
		}
		return s.locker.query(ctx, func(scan func(...any) error) error {
			var one seen
			err := scan(&one.i, &one.version, &one.open)
			all = append(all, one)
			return err
		}, p.sql.poll, keysOf(subscribed))
	})
	if err != nil {
		return // the next look calls those whose key has changed
	}
	s.mu.Lock()
	var calls []func()
	for _, one := range all {
		k := subscribed[one.i-1]
		changed := k.version != one.version // also if this is the first look
		k.version = one.version
		if changed && one.open {
			clear(k.fresh)
			calls = append(calls, k.all()...)
			continue
		}
		calls = append(calls, k.begun()...)
	}
	s.mu.Unlock()
	for _, call := range calls {
		call()
	}
}
