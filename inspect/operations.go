package inspect

import (
	"context"
	"encoding/json"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Action is a change that an operator has asked for.
type Action string

// The actions.
const (
	ActionBreak    Action = "break"
	ActionBreakNow Action = "break-now"
	ActionForget   Action = "forget"
	ActionHold     Action = "hold"
	ActionPause    Action = "pause"
	ActionResume   Action = "resume"
	ActionTrigger  Action = "trigger"
)

// An Operation is the record of a change. It is written before the change is made, so it may name
// one that found nothing to do.
type Operation struct {
	Time   time.Time     `json:"time"` // by the clock of the process that asked for it
	Action Action        `json:"action"`
	Key    string        `json:"key,omitempty"`
	ID     string        `json:"id,omitempty"`     // of the claim that was to be broken
	Holder string        `json:"holder,omitempty"` // the label of that claim
	Fence  uint64        `json:"fence,omitempty"`  // of that claim
	Job    string        `json:"job,omitempty"`    // instead of a key
	For    time.Duration `json:"for,omitempty"`
	Actor  string        `json:"actor"`
	Reason string        `json:"reason,omitempty"`
}

// storedOperation is an Operation as the store keeps it. JSON has no key that is not UTF-8.
type storedOperation struct {
	Operation
	KeyBytes []byte `json:"key_bytes,omitempty"`
}

const (
	// operationsName is the name of the log of operations in the Ledger.
	operationsName = "onerun:operations"
	// keptOperations is how many operations the store keeps.
	keptOperations = 1000
)

// Operations returns the newest operations, at most n of 1,000, the newest first. It returns none
// if the backend keeps no records (driver.Ledger). Its errors are those of Show.
func (i *Inspector) Operations(ctx context.Context, n int) ([]Operation, error) {
	if i.ledger == nil {
		return nil, nil
	}
	entries, err := driver.Entries(ctx, i.ledger, operationsName, n)
	if err != nil {
		return nil, err
	}
	var all []Operation
	for _, e := range entries {
		var o storedOperation
		if json.Unmarshal(e.Record, &o) != nil {
			continue // it is another version's
		}
		if o.KeyBytes != nil {
			o.Key = string(o.KeyBytes)
		}
		all = append(all, o.Operation)
	}
	return all, nil
}

// LastOperation returns the newest of the 1,000 newest operations that is about the key, or nil if
// none is. Its errors are those of Show.
func (i *Inspector) LastOperation(ctx context.Context, key string) (*Operation, error) {
	all, err := i.Operations(ctx, keptOperations)
	if err != nil {
		return nil, err
	}
	if at := slices.IndexFunc(all, func(o Operation) bool { return o.Key == key }); at >= 0 {
		return &all[at], nil
	}
	return nil, nil
}

// change records the operation, makes it, and reports it to the hooks.
func (i *Inspector) change(ctx context.Context, o Operation, by By, do func() (bool, error)) (changed bool, err error) {
	return Change(ctx, i.guard, o, by, do)
}

// Change is for packages that change what an operator asks for, such as guardcron. It records the
// operation, calls do, and reports to the Guard's hooks what has come of it. The time, the actor
// and the reason of o are set here. do returns whether it has changed anything.
func Change(ctx context.Context, g *guard.Guard, o Operation, by By, do func() (bool, error)) (changed bool, err error) {
	if err := by.check(); err != nil {
		return false, err
	}
	o.Time, o.Actor, o.Reason = time.Now(), by.Actor, by.Reason
	if err := record(ctx, g, o); err != nil {
		return false, err
	}
	changed, err = do()
	result := "failed"
	switch {
	case err == nil && changed:
		result = string(o.Action)
	case err == nil:
		result = "unchanged"
	}
	g.Adapter().Report(ctx, guard.Outcome{
		Adapter: "inspect", Name: o.Job, Result: result, Key: o.Key, Owner: o.ID, Label: by.label(string(o.Action)),
		Start: o.Time, Duration: time.Since(o.Time), Err: err,
	})
	return changed, err
}

func record(ctx context.Context, g *guard.Guard, o Operation) error {
	ledger, ok := g.Adapter().Ledger()
	if !ok {
		return nil
	}
	stored := storedOperation{Operation: o}
	if !utf8.ValidString(o.Key) {
		stored.KeyBytes = []byte(o.Key)
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return ledger.Append(ctx, operationsName, driver.Entry{At: o.Time.UnixMilli(), Record: text}, keptOperations)
}
