package idempotent

import "context"

// A Keep is what is kept of a run.
type Keep uint8

// What can be kept.
const (
	KeepNothing Keep = iota
	KeepAnswer
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

// An Ending is how a handler has ended.
type Ending struct {
	Gone       bool // the client did not get all of the answer
	Unsure     bool // the handler may still run, so a retry must not run beside it
	Undecided  bool // other code may answer after the handler, which has not
	Replayable bool // the answer can be given again
}

// Keep returns what to keep of a run. final reports whether the answer is final by the policy. It
// is not called if the handler has chosen what to keep. ctx is the context of the call.
func (c *Call) Keep(ctx context.Context, e Ending, final func() bool) Keep {
	s := c.Core.Settings
	switch {
	case s.Mode == Exclusive:
		return KeepNothing
	case (s.Cancel || s.Shadow) && (e.Gone || ctx.Err() != nil):
		return KeepNothing
	case s.Shadow && e.Undecided:
		return KeepNothing // shadow mode must not prevent the other answer
	case e.Unsure:
		return KeepTombstone // whatever the policy says
	}
	keep, chosen := c.Run.chosen()
	if !chosen {
		keep = KeepAnswer
		if !final() {
			return KeepNothing
		}
	}
	switch {
	case keep != KeepAnswer:
		return keep
	case s.Mode == Reject:
		return KeepTombstone
	case !e.Replayable && s.Rerun:
		return KeepNothing
	case !e.Replayable:
		return KeepTombstone
	}
	return KeepAnswer
}
