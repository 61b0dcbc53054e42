// Package inspect shows operators which keys are held, by which process, and since when. It lets
// them break a lease, keep a key busy, or have finished work run again.
//
//	g, err := guard.New(single.New(rdb), guard.WithNamespace("billing"))
//	i, err := inspect.New(g)
//	key, err := i.Show(ctx, "nightly-report")
//	by := inspect.By{Actor: "alice", Reason: "it hangs"}
//	broken, err := i.Break(ctx, "nightly-report", key.Holders[0].ID, by)
//
// An Inspector uses the namespace and the hooks of its Guard. It works on what the store keeps, so
// it also shows and changes what other processes hold.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An Inspector shows and changes what a backend keeps. It is safe for concurrent use.
type Inspector struct {
	guard  *guard.Guard
	store  driver.Inspector
	ledger driver.Ledger // nil if the backend has none
}

// New returns an Inspector of the Guard's store. It returns a *guard.SettingError if the backend
// cannot show its keys, and if the Guard has neither guard.WithNamespace nor
// guard.WithoutNamespace: an Inspector shows the keys of one namespace, or those that have none.
func New(g *guard.Guard) (*Inspector, error) {
	if g == nil {
		return nil, &guard.SettingError{Setting: "guard", Value: "nil", Reason: "must not be nil"}
	}
	if err := g.Adapter().Check(nil); err != nil {
		return nil, err
	}
	store, ok := g.Adapter().Inspector()
	if !ok {
		return nil, &guard.SettingError{Setting: "guard", Reason: "its backend cannot show its keys (driver.Inspector)"}
	}
	i := &Inspector{guard: g, store: store}
	i.ledger, _ = g.Adapter().Ledger()
	return i, nil
}

// Guard returns the Guard that New was given.
func (i *Inspector) Guard() *guard.Guard { return i.guard }

// A Key is what the store keeps about a key.
type Key struct {
	Name string // the key without the Guard's namespace
	driver.KeyInfo
}

// A Holder is a claim that holds a key. A Marker is what is left of finished work.
type (
	Holder = driver.Holder
	Marker = driver.Marker
)

// Show returns what the store keeps about the key. It changes nothing. Its errors are a
// *guard.KeyError, a *guard.StoreError, or the error of ctx.
func (i *Inspector) Show(ctx context.Context, key string) (Key, error) {
	info, err := i.store.Show(ctx, key)
	return Key{key, info}, err
}

// showsAtOnce bounds how many keys are shown at a time, for a page.
const showsAtOnce = 64

// List returns a page of about n keys that begin with the prefix and are not free, from 1 to
// 10,000, in no order. The first cursor is "", and so is the one after the last page. A page may be
// empty although it is not the last.
//
// On Redis, List scans the keys of the server, at most 100,000 of them for a page, and then asks
// for each key that it has found. So it is for people, and not for a timer.
func (i *Inspector) List(ctx context.Context, prefix, cursor string, n int) (keys []Key, next string, err error) {
	names, next, err := i.store.Keys(ctx, prefix, cursor, n)
	if err != nil {
		return nil, "", err
	}
	slices.Sort(names) // a scan may return a key twice
	keys, err = i.showAll(ctx, slices.Compact(names))
	if err != nil {
		return nil, "", err
	}
	return keys, next, nil
}

func isKeyError(err error) bool {
	var bad *guard.KeyError
	return errors.As(err, &bad)
}

// By names the operator who asks for a change, and the reason. Both become part of the label that
// others see, of the record of the operation, and of what hooks receive.
type By struct {
	Actor  string // must not be empty
	Reason string
}

// label returns the label of what By leaves behind.
func (b By) label(what string) string {
	label := what + " by " + b.Actor
	if b.Reason != "" {
		label += ": " + b.Reason
	}
	return label
}

const (
	maxActor  = 100 // bytes
	maxReason = 300
	maxLabel  = 512 // see guard.WithLabel
)

func (b By) check() error {
	switch {
	case b.Actor == "":
		return &guard.SettingError{Setting: "By.Actor", Value: `""`, Reason: "must name the operator who asks for the change"}
	case len(b.Actor) > maxActor:
		return &guard.SettingError{Setting: "By.Actor", Reason: fmt.Sprintf("must not exceed %d bytes", maxActor)}
	case len(b.Reason) > maxReason:
		return &guard.SettingError{Setting: "By.Reason", Reason: fmt.Sprintf("must not exceed %d bytes", maxReason)}
	}
	return nil
}

// Break takes the key from the claim of that ID (Holder.ID). Its holder learns of it at its next
// renewal, within a third of its TTL: the context of the run ends, and Do returns guard.ErrLost.
// The key stays taken until the TTL of the claim has passed, so that no other run begins while the
// broken one still runs. Waiters see the actor, the reason and the former holder's label as the
// label of the holder. The former holder finds the actor and the reason in guard.LostError.Broken.
//
// Break returns false if no claim of that ID holds the key any more. So it never hits a later
// holder. Its other errors are those of Show, and a *guard.SettingError for a bad By. After an
// error, it is unknown whether the claim was broken.
func (i *Inspector) Break(ctx context.Context, key, id string, by By) (bool, error) {
	return i.breaks(ctx, ActionBreak, key, id, by)
}

// BreakNow is Break that frees the key at once. Two runs can then overlap, until the holder's next
// renewal: only the fence distinguishes them. Use it only if the holder is certainly dead. It also
// ends the rest of a minimum hold, and what Hold or Break keep busy.
func (i *Inspector) BreakNow(ctx context.Context, key, id string, by By) (bool, error) {
	return i.breaks(ctx, ActionBreakNow, key, id, by)
}

func (i *Inspector) breaks(ctx context.Context, action Action, key, id string, by By) (bool, error) {
	if id == "" {
		return false, &guard.SettingError{Setting: "id", Value: `""`, Reason: "must be the ID of a holder of " + key}
	}
	info, err := i.store.Show(ctx, key)
	if err != nil {
		return false, err
	}
	label := by.label("broken")
	o := Operation{Action: action, Key: key, ID: id}
	if at := slices.IndexFunc(info.Holders, func(h Holder) bool { return h.ID == id }); at >= 0 {
		h := info.Holders[at]
		o.Holder, o.Fence = h.Label, h.Fence
	}
	return i.change(ctx, o, by, func() (bool, error) {
		if err := i.guard.Adapter().RecordBreak(ctx, id, label); err != nil {
			return false, err
		}
		return i.store.Break(ctx, key, id, driver.Break{
			ID: driver.NewBrokenID(), Label: labelOfBroken(label, o.Holder), Now: action == ActionBreakNow,
		})
	})
}

// labelOfBroken adds the label of the former holder to that of a break. It leaves the holder's out
// if both would be longer than a label may be.
func labelOfBroken(label, holder string) string {
	if more := "; was " + holder; holder != "" && len(label)+len(more) <= maxLabel {
		return label + more
	}
	return label
}

// Forget removes the done marker of the key (guard.WithOnce), so that its work runs again at the
// next call. It returns false if there is no marker. Its errors are those of Break.
func (i *Inspector) Forget(ctx context.Context, key string, by By) (bool, error) {
	return i.change(ctx, Operation{Action: ActionForget, Key: key}, by, func() (bool, error) {
		return i.store.Forget(ctx, key)
	})
}

// Hold keeps the key busy for d, at most ten years, although nothing runs: to keep work from
// starting. It waits for the present holder only if opts has guard.WithWait, and returns a
// *guard.BusyError otherwise. It returns the ID by which BreakNow ends the hold early. Its other
// errors are those of Break and of Guard.Acquire, and a *guard.SettingError for an option that has
// no effect: guard.WithOnce, guard.WithLabel, guard.WithMinHold, guard.WithMaxHold,
// guard.WithoutRenewal, guard.WithMargin, guard.WithLimit and guard.WithShared.
func (i *Inspector) Hold(ctx context.Context, key string, d time.Duration, by By, opts ...guard.Option) (id string, err error) {
	if d <= 0 {
		return "", &guard.SettingError{Setting: "Hold", Value: d.String(), Reason: "must be positive"}
	}
	if err := i.guard.Adapter().CheckOptions(unusedByHold, opts...); err != nil {
		return "", err
	}
	_, err = i.change(ctx, Operation{Action: ActionHold, Key: key, For: d}, by, func() (bool, error) {
		opts = append(opts[:len(opts):len(opts)], guard.WithMinHold(d), guard.WithLabel(by.label("held")), guard.WithMaxHold(0), guard.WithLimit(0))
		lease, err := i.guard.Acquire(ctx, key, opts...)
		if err != nil {
			return false, err
		}
		id = lease.ID()
		return true, lease.Release(ctx)
	})
	return id, err
}

// unusedByHold are the options that Hold cannot honor, and why.
var unusedByHold = map[string]string{
	"WithOnce":       "has no effect here: nothing runs",
	"WithLabel":      "has no effect here: By is the label",
	"WithMinHold":    "has no effect here: d is how long the key stays busy",
	"WithMaxHold":    "has no effect here: d is how long the key stays busy",
	"WithoutRenewal": "has no effect here: nothing is renewed",
	"WithMargin":     "has no effect here: nothing runs",
	"WithLimit":      "has no effect here: Hold has the key alone",
	"WithShared":     "has no effect here: Hold has the key alone",
}
