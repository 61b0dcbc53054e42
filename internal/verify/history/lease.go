package history

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

const never int64 = math.MaxInt64

// slack is by how much an expiry may come early or late: the store counts in milliseconds, by a
// clock that is slewed.
const slack = 5 * time.Millisecond

// An input is one operation of a lease on one key. Time is not in the model: that a grant expires
// is an operation of its own.
type input struct {
	Kind    Kind // Acquire, Renew, Release, Belief for the begin of one, or expiry
	Claim   string
	Term    int // Acquire, Renew, expiry: the term that it begins or ends
	Fence   uint64
	Reserve int
}

const expiry Kind = "expiry"

// A lease is the state of a key.
type lease struct {
	Claim string // the claim that has it, or ""
	Term  int    // which of its terms: the grant's, or that of the last renewal
	First uint64 // the fence that it was granted, or 0 if that is not known
	Last  uint64 // the highest that was granted or reserved for any claim
	Used  uint64 // the fence of the last belief under the claim
}

// model says what answers of a store are those of a lease that expires. It is judged for each key
// by itself.
var model = (&porcupine.NondeterministicModel{
	Init: func() []any { return []any{lease{}} },
	Step: func(state, in, out any) []any { return step(state.(lease), in.(input), out.(Event)) },
	DescribeOperation: func(in, out any) string {
		i, o := in.(input), out.(Event)
		return fmt.Sprintf("%s %.6s term %d: %s %d", i.Kind, i.Claim, i.Term, o.Outcome, o.Fence)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}).ToModel()

// step returns the states in which the key may be after an operation; none if it cannot have had
// that outcome.
func step(s lease, in input, out Event) []any {
	mine := s.Claim == in.Claim
	same, done := []any{s}, []any(nil)
	switch in.Kind {
	case Acquire:
		return acquired(s, in, out)
	case Renew:
		if mine {
			next := s
			next.Term, next.Last = in.Term, max(s.Last, in.Fence+uint64(in.Reserve))
			done = []any{next}
		}
	case Release:
		if mine {
			done = []any{lease{Last: s.Last}}
		}
	case Belief: // under a fence that the claim was given, and nobody has used
		if mine && in.Fence > s.Used && in.Fence <= s.Last && in.Fence >= s.First {
			s.Used = in.Fence
			return []any{s}
		}
		return nil
	default: // expiry
		if mine && s.Term == in.Term {
			return []any{lease{Last: s.Last}}
		}
		return same
	}
	switch out.Outcome {
	case OK:
		return done
	case NotHeld:
		if mine {
			return nil
		}
		return same
	case Neither:
		return same
	default:
		return append(done, same...)
	}
}

func acquired(s lease, in input, out Event) []any {
	same := []any{s}
	mine, free := s.Claim == in.Claim, s.Claim == ""
	again := s
	again.Term = in.Term
	switch out.Outcome {
	case OK:
		switch {
		case free && out.Fence > s.Last:
			return []any{lease{Claim: in.Claim, Term: in.Term, First: out.Fence, Last: out.Fence + uint64(in.Reserve)}}
		case mine && s.First == out.Fence:
			return []any{again}
		case mine && s.First == 0 && out.Fence > s.Last:
			// an earlier request, which had no answer, was granted
			again.First, again.Last = out.Fence, out.Fence+uint64(in.Reserve)
			return []any{again}
		}
		return nil
	case Busy:
		if free || mine {
			return nil
		}
		return same
	case Done, Neither:
		return same
	default:
		switch {
		case free:
			return append(same, lease{Claim: in.Claim, Term: in.Term, Last: s.Last})
		case mine:
			return append(same, again)
		}
		return same
	}
}

// Verdict is what porcupine says of a history.
type Verdict struct {
	Result porcupine.CheckResult
	Key    string // the first of which the result is not Ok
	Calls  int    // of all keys
}

// OK reports whether the history is that of a lease.
func (v Verdict) OK() bool { return v.Result == porcupine.Ok }

func (v Verdict) String() string {
	switch v.Result {
	case porcupine.Ok:
		return "ok"
	case porcupine.Illegal:
		return "ILLEGAL on " + v.Key
	default:
		return "inconclusive on " + v.Key
	}
}

// Linearizable asks porcupine, which may take as long as limit for a key, whether the answers of
// the store in the events are those of a lease that expires. It holds for stores that forget
// nothing and whose clock does not jump. What was never answered may be done at any time, or
// never.
func Linearizable(events []Event, limit time.Duration) Verdict {
	v := Verdict{Result: porcupine.Ok}
	byKey := map[string][]porcupine.Operation{}
	var keys []string
	for i, e := range events {
		if !slices.Contains(keys, e.Key) && e.Key != "" {
			keys = append(keys, e.Key)
		}
		byKey[e.Key] = append(byKey[e.Key], operations(e, i+1)...)
	}
	for _, key := range keys {
		v.Calls += len(byKey[key])
		result := porcupine.CheckOperationsTimeout(model, byKey[key], limit)
		if result != porcupine.Ok {
			v.Result, v.Key = result, key
			return v
		}
	}
	return v
}

// OfQuorum returns the events as porcupine can judge them if the store is a quorum of nodes. An
// abandoned claim may stay on some nodes for a while. Other claims may or may not be refused
// because of it, and whether a release finds it depends on the node. So refusals prove nothing,
// and neither do the answers to releases of a claim that was never granted. Grants, renewals, and
// releases of granted claims are judged as they are.
func OfQuorum(events []Event) []Event {
	granted := map[string]bool{}
	for _, e := range events {
		if e.Kind == Acquire && e.Outcome == OK {
			granted[e.Claim] = true
		}
	}
	all := slices.Clone(events)
	for i, e := range all {
		if e.Kind == Acquire && e.Outcome == Busy || e.Kind == Release && e.over() && !granted[e.Claim] {
			all[i].Outcome = Unknown
			if e.Kind == Acquire {
				all[i].Outcome = Neither
			}
		}
	}
	return all
}

// operations returns what an event is in the model. number is that of the event, and of the term
// that it may begin.
func operations(e Event, number int) []porcupine.Operation {
	in := input{Kind: e.Kind, Claim: e.Claim, Term: number, Fence: e.Fence, Reserve: e.Reserve}
	if !e.over() {
		e.Outcome, e.Return = Unknown, never
	}
	end := e.Return
	if e.Outcome == Unknown {
		end = never
	}
	op := porcupine.Operation{ClientId: number, Input: in, Call: e.Call, Output: e, Return: end}
	switch e.Kind { //nolint:exhaustive // others are not calls to the store
	case Release:
		return []porcupine.Operation{op}
	case Belief:
		// The fence came into use between the request and this record. The client can be paused
		// before it makes the record, so that is the latest time.
		op.Call, op.Return = e.Since, e.Call
		return []porcupine.Operation{op}
	case Acquire, Renew:
		if e.Outcome != OK && e.Outcome != Unknown {
			return []porcupine.Operation{op}
		}
		in.Kind = expiry
		over := porcupine.Operation{ClientId: -number, Input: in, Output: e, Call: e.Call + int64(e.TTL-slack), Return: never}
		if end != never {
			over.Return = end + int64(e.TTL+slack)
		}
		return []porcupine.Operation{op, over}
	}
	return nil
}
