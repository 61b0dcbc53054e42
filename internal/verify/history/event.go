package history

import "time"

// A Kind is what an Event is about.
type Kind string

// The kinds of events.
const (
	Acquire  Kind = "acquire"  // a call to the store: TryAcquire
	Renew    Kind = "renew"    // a call to the store
	Release  Kind = "release"  // a call to the store
	Attempt  Kind = "attempt"  // a call of Guard.Acquire, from when it was made until it returned
	Belief   Kind = "belief"   // the time for which a client thinks that it holds a key
	Register Kind = "register" // a read that was offered to a Resource, as the Resource saw it
	Write    Kind = "write"    // a write that was offered to a Resource, as the Resource saw it
	Killed   Kind = "killed"   // the end of a process, as recorded by the process that killed it
	Stall    Kind = "stall"    // a time for which a process did not run
	Starved  Kind = "starved"  // a time in which a thread waited for a CPU, as long as Late says
)

// An Outcome is the result of a call.
type Outcome string

// The outcomes of calls.
const (
	OK      Outcome = "ok"
	Busy    Outcome = "busy"
	Done    Outcome = "done"
	NotHeld Outcome = "not_held" // the store did not know the claim
	// It was refused without naming a holder: several claims met, or the server
	// refused the command.
	Neither Outcome = "neither"
	Unknown Outcome = "unknown" // no answer: it may have been done, or may be done later
	Refused Outcome = "refused" // a read or a write whose fence was too low
	Errored Outcome = "error"   // an attempt that ended with an error, see Event.Err
)

// An Event is something that took time in one process. Instants are nanoseconds of
// CLOCK_MONOTONIC, which all processes of a machine share. An event is written when it begins, and
// again when it has ended: Return is 0 for one that did not live to see its end. Fields that do
// not belong to the kind are zero.
type Event struct {
	Process string `json:"p"`
	Number  int    `json:"n"` // of the event, within its process
	Kind    Kind   `json:"k"`
	Key     string `json:"key,omitempty"`
	Claim   string `json:"c,omitempty"` // the ID of the claim
	// Holder names the belief under which a read or a write was made. A lease that is handed off
	// is one claim and several beliefs.
	Holder  string        `json:"h,omitempty"`
	Fence   uint64        `json:"f,omitempty"`
	Reserve int           `json:"r,omitempty"` // fences reserved, or asked for without an answer
	TTL     time.Duration `json:"ttl,omitempty"`
	Call    int64         `json:"b"`
	Since   int64         `json:"s,omitempty"` // of a belief: when the lease was asked for
	Return  int64         `json:"e,omitempty"`
	Outcome Outcome       `json:"o,omitempty"`
	// Deadline is, of a belief that has ended, until when it could last at the most: a TTL after
	// the last request that was granted or renewed was sent, less the margin. Of an attempt it is
	// that of the caller's context, or 0.
	Deadline int64 `json:"d,omitempty"`
	// Late is, of a Starved, how long the thread waited. It is, of a belief that ended as time was
	// up, how long before Return that was: Valid said no since then.
	Late time.Duration `json:"l,omitempty"`
	// Reason is why a belief ended: "released", "cancelled", or the guard.LossReason.
	Reason string `json:"why,omitempty"`
	Err    string `json:"err,omitempty"`
}

// over reports whether the event has ended.
func (e Event) over() bool { return e.Return != 0 }
