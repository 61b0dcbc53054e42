package idempotency

// A Mode sets what happens to a call whose key has been seen before.
type Mode uint8

const (
	// Replay gives the first answer again. It is the default.
	Replay Mode = iota
	// Reject refuses the call with 409, ALREADY_EXISTS. No answer is kept, only that there was one.
	Reject
	// Exclusive runs the handler again. Nothing is remembered: calls of one key only do not run at
	// the same time.
	Exclusive
)

// A Keep is what is kept of a run.
type Keep uint8

const (
	// KeepNothing leaves the key free: a retry runs the handler.
	KeepNothing Keep = iota
	// KeepAnswer leaves the answer: a retry gets it again.
	KeepAnswer
	// KeepTombstone leaves only that the handler ran: a retry is refused with 409, ALREADY_EXISTS.
	KeepTombstone
)

// String returns "nothing", "answer" or "tombstone".
func (k Keep) String() string {
	switch k {
	case KeepAnswer:
		return "answer"
	case KeepTombstone:
		return "tombstone"
	default:
		return "nothing"
	}
}
