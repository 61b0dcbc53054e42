package queue

import "time"

const (
	// mostRivals bounds the estimate for a key, and mostRivalKeys the keys with an estimate.
	mostRivals    = 64
	mostRivalKeys = 256
	// rivalTrips is how many round trips of a window there are for each rival.
	rivalTrips = 1
	// patientRounds is how many releases a process lets pass before it asks in half of the window,
	// and then in a third, and so on: its estimate may be too high, or its luck bad.
	patientRounds = 16
)

// rivals estimates how many processes ask for a key at the same time, for keys of which a quorum
// was split between their claims. A process then asks at a random instant of a window that has
// room for all of them, so that mostly one asks first and the others find the key held. As in
// Ethernet's backoff, the estimate doubles when claims collide, grows by one when the claim comes
// too late, and shrinks with each grant.
type rivals map[string]int

// collided notes that the claim has collided with others, and none was granted.
func (r rivals) collided(key string) { r.raise(key, 2*r[key]+1) }

// cameTooLate notes that the claim came too late: another was granted the key, at the cost of one
// call.
func (r rivals) cameTooLate(key string) { r.raise(key, r[key]+1) }

func (r rivals) raise(key string, to int) {
	if len(r) >= mostRivalKeys && r[key] == 0 {
		clear(r)
	}
	r[key] = min(to, mostRivals)
}

// granted notes that the claim was granted.
func (r rivals) granted(key string) {
	switch n := r[key]; {
	case n > 1:
		r[key] = n - (n+7)/8
	case n == 1:
		delete(r, key)
	}
}

// window returns the length of the window in which a process asks, which is 0 if it has collided
// with none.
func (r rivals) window(key string, trip time.Duration) time.Duration {
	return time.Duration(rivalTrips*r[key]) * trip
}
