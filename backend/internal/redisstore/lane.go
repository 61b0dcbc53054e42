package redisstore

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// largestFlight bounds a flight, so that no answer is far behind its request.
	largestFlight = 128
	// usualFlights is how many are out at a time where there is much to do, and secondFlight how
	// many requests have to have come for the second one to begin while the first is out.
	usualFlights = 2
	secondFlight = 32
	// lateAfter is how long a flight may be out before what waits behind it goes out by itself:
	// its connection may be dead, or the server frozen. There are mostFlights then.
	lateAfter   = 50 * time.Millisecond
	mostFlights = 8
	// leastPrune is how many requests may wait before the queue is searched for those whose
	// callers have left, because the server does not answer.
	leastPrune = 4 * largestFlight
	// mostBytes is how much of records a flight has beside its first request.
	mostBytes = 1 << 20
	// idle is for how long the pilot of a lane waits for more: a goroutine that has grown its
	// stack for go-redis is worth keeping.
	idle = 100 * time.Millisecond
)

// A lane is the way of scripts to one server. While flights are out, what comes in waits, and goes
// out together as the next one, in one script. A request that comes alone goes out at once, in a
// script of its own.
type lane struct {
	client redis.UniversalClient
	apart  atomic.Int32 // what the server does not take in one script: a keeping
	// sends one that the node of a Cluster has refused to where it belongs, or nil
	moved    func(r *request)
	seats    []*seat // for flights
	renewals *seat   // or nil
	pooled   *pooled // for renewals, if there are no connections of our own

	mu      sync.Mutex
	queue   []*request
	prune   int           // how long the queue may be before callers that left are looked for
	flights int           // that are out, or about to be
	last    time.Time     // when the newest of them went out
	parked  int           // pilots that wait for more
	call    chan struct{} // calls one
	alarm   *time.Timer
}

// newLane returns the way to the client's server.
func newLane(client redis.UniversalClient) *lane {
	l := &lane{client: client, call: make(chan struct{}, usualFlights)}
	user, ok := client.(*redis.Client)
	if !ok || user == nil {
		return l
	}
	if onlyByPool(user) {
		l.pooled = newPooled(user)
		return l
	}
	for range usualFlights {
		l.seats = append(l.seats, newSeat(user, seatIdle))
	}
	l.renewals = newSeat(user, renewalIdle)
	return l
}

// all returns the lane's seats, none where the client is not a *redis.Client.
func (l *lane) all() []*seat {
	if l.renewals == nil {
		return nil
	}
	return append(l.seats[:len(l.seats):len(l.seats)], l.renewals)
}

// onlyByPool reports whether everything goes by the client's own connections.
//
// If Sentinel chooses the server, go-redis closes these when Sentinel names another one, while the
// old one may live on and accept what comes. Credentials that change reach only these. And if they
// have no read deadlines, ours cannot have any (connections through SSH cannot).
func onlyByPool(user *redis.Client) bool {
	opt := user.Options()
	const noDeadlines = -1 // go-redis turns the -2 that a user gives into this
	return address(user) == behindSentinel || opt.StreamingCredentialsProvider != nil || opt.ReadTimeout == noDeadlines
}

// unused reports whether nothing has gone this way for some time.
func (l *lane) unused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flights == 0 && len(l.queue) == 0 && time.Since(l.last) > time.Minute
}

// setUp has clients of our own set up before they are used.
func (l *lane) setUp(setups []func(*redis.Client)) {
	for _, s := range l.all() {
		s.setups = setups
	}
}

// A request is a call on its way.
type request struct {
	ctx    context.Context
	call   Call
	done   func(answer any, err error) // or nil for one that is waited for
	soon   *time.Timer                 // of who waits
	ready  chan struct{}               // tells who waits that there are these:
	answer any
	err    error
	slot   int      // of its key, and one more; 0 if nobody has asked
	name   longName // of the call, which points to it
}

// set makes it the request of a call.
func (r *request) set(ctx context.Context, c *Call) {
	r.ctx, r.call = ctx, *c
	if c.prefix != "" {
		r.name.prefix, r.name.rest = c.prefix, c.texts[0]
		r.call.first = &r.name
	}
}

// finish gives the request its answer.
func (r *request) finish(answer any, err error) {
	if r.done != nil {
		r.done(answer, err)
		return
	}
	r.answer, r.err = answer, err
	r.ready <- struct{}{} // has room
}

// inSlot returns the slot of the request's key in a Redis Cluster.
func (r *request) inSlot() int {
	if r.slot == 0 {
		r.slot = Slot(r.call.key) + 1
	}
	return r.slot - 1
}

// send sends the request with the next flight. It is finished once, soon after ctx has ended if
// the server answers other requests, and at the latest when the client gives up.
func (l *lane) send(r *request) {
	l.mu.Lock()
	l.queue = append(l.queue, r)
	left := l.pruned()
	if l.ready() {
		l.begin()
	} else if l.alarm == nil && l.flights < mostFlights {
		l.alarm = time.AfterFunc(lateAfter, l.ring)
	}
	l.mu.Unlock()
	stillWaited(left)
}

// pruned removes the requests whose callers have left from a queue that has grown, and returns
// them. l.mu must be held.
func (l *lane) pruned() (left []*request) {
	if len(l.queue) <= max(l.prune, leastPrune) {
		return nil
	}
	l.queue = slices.DeleteFunc(l.queue, func(r *request) bool {
		if r.ctx.Err() == nil {
			return false
		}
		left = append(left, r)
		return true
	})
	l.prune = 2 * len(l.queue)
	return left
}

// ready reports whether a flight is to begin with what is in the queue. While one is out, a second
// begins when it is worth a script of its own: then the server is at work on one while the other
// is packed, or its answers are handed out. l.mu must be held.
func (l *lane) ready() bool {
	switch l.flights {
	case 0:
		return len(l.queue) > 0
	case 1:
		return len(l.queue) >= secondFlight
	default:
		return false
	}
}

// begin begins a flight. l.mu must be held.
func (l *lane) begin() {
	l.flights++
	if l.parked > 0 {
		l.parked--
		l.call <- struct{}{} // has room, as pilots that are not parked are not called
		return
	}
	go l.pilot()
}

// ring is called when something may have waited behind a flight for some time.
func (l *lane) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alarm = nil
	switch waited := time.Since(l.last); {
	case len(l.queue) == 0 || l.flights >= mostFlights:
	case waited < lateAfter:
		l.alarm = time.AfterFunc(lateAfter-waited, l.ring)
	default:
		l.begin()
		if l.flights < mostFlights {
			l.alarm = time.AfterFunc(lateAfter, l.ring)
		}
	}
}

// take takes a flight's requests from the queue. l.mu must be held.
func (l *lane) take(flight []*request) []*request {
	n, bytes := 0, 0
	for n < min(len(l.queue), largestFlight) {
		bytes += len(l.queue[n].call.record)
		if n > 0 && bytes > mostBytes {
			break
		}
		n++
	}
	flight = append(flight[:0], l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	l.last = time.Now()
	return flight
}

// pilot sends flights, one after the other, until there has been none to send for some time.
func (l *lane) pilot() {
	rest := time.NewTimer(idle)
	defer rest.Stop()
	var flight []*request
	for {
		l.mu.Lock()
		flight = l.take(flight)
		l.mu.Unlock()
		if len(flight) > 0 { // it may be out with another pilot
			l.fly(flight)
			clear(flight)
		}
		l.mu.Lock()
		l.flights--
		if l.ready() {
			l.flights++
			l.mu.Unlock()
			continue
		}
		if l.parked == usualFlights { // they are enough
			l.mu.Unlock()
			return
		}
		l.parked++
		l.mu.Unlock()
		if !l.called(rest) {
			return
		}
	}
}

// called waits for a call to a parked pilot, and returns false if none comes for some time.
func (l *lane) called(rest *time.Timer) bool {
	rest.Reset(idle)
	select {
	case <-l.call:
		return true
	case <-rest.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.parked > 0 {
		l.parked--
		return false
	}
	<-l.call // it was called at this very moment
	return true
}

// fly sends a flight and hands out the answers.
func (l *lane) fly(flight []*request) {
	if len(flight) == 1 {
		l.flyAlone(flight[0])
		return
	}
	present := stillWaited(flight)
	if len(present) == 0 {
		return
	}
	ctx, cancel := lastOf(present)
	defer cancel()
	l.carry(ctx, l.pack(present))
}

func (l *lane) flyAlone(r *request) {
	if err := r.ctx.Err(); err != nil {
		r.finish(nil, err)
		return
	}
	l.carry(r.ctx, []*parcel{{Command: r.call.Command, requests: []*request{r}}})
}

// carry sends the parcels, from a seat if there is one, and hands out the answers.
func (l *lane) carry(ctx context.Context, parcels []*parcel) {
	if s := l.board(ctx); s != nil {
		l.deliver(ctx, s.client, parcels)
		s.leave(worst(parcels))
	} else {
		l.deliver(ctx, l.client, parcels)
	}
	for _, p := range parcels {
		l.handOut(p)
	}
}

// lastOf returns a context for a flight, which ends when the last of its requests' contexts must
// have.
func lastOf(flight []*request) (context.Context, context.CancelFunc) {
	var last time.Time
	for _, r := range flight {
		deadline, ok := r.ctx.Deadline()
		if !ok {
			return context.WithoutCancel(r.ctx), func() {}
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return context.WithDeadline(context.WithoutCancel(flight[0].ctx), last)
}
