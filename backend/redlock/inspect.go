package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var _ driver.Inspector = (*Locker)(nil)

const (
	// inspectTimeout bounds a call to one node for an operator.
	inspectTimeout = 5 * time.Second
	// inspectGrace is how much longer than a majority the slower nodes may take to show a key.
	inspectGrace = 100 * time.Millisecond
)

// Show implements driver.Inspector. It shows the claims that a majority may know, and how many
// nodes do (Holder.Nodes), by the nodes that have answered soon after a majority.
func (l *Locker) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	infos, err := askMajority(ctx, l, driver.OpInspect, key, inspectGrace, show(key))
	if err != nil {
		return driver.KeyInfo{}, err
	}
	return l.merge(infos), nil
}

func show(key string) func(context.Context, driver.Inspector) (driver.KeyInfo, error) {
	return func(ctx context.Context, n driver.Inspector) (driver.KeyInfo, error) { return n.Show(ctx, key) }
}

// merge returns what the nodes that have answered know together.
func (l *Locker) merge(infos []driver.KeyInfo) driver.KeyInfo {
	silent := len(l.nodes) - len(infos)
	most := func(n int) bool { return n+silent >= l.quorum } // it may be a majority
	info := driver.KeyInfo{Time: infos[len(infos)/2].Time, Subscribers: -1}
	holders := map[string][]driver.Holder{}
	wanted := map[string]int{}
	foreign := 0
	for _, of := range infos {
		info.Subscribers = max(info.Subscribers, of.Subscribers)
		for _, h := range of.Holders {
			holders[h.ID] = append(holders[h.ID], h)
		}
		if m := of.Marker; m != nil && (info.Marker == nil || leftOrForever(m.Left) > leftOrForever(info.Marker.Left)) {
			info.Marker = m // the work is done, even if few nodes know it
		}
		if wanted[of.Wanted]++; of.Wanted != "" && most(wanted[of.Wanted]) {
			info.Wanted = of.Wanted
		}
		if of.Foreign != "" {
			if foreign++; foreign+silent > len(l.nodes)-l.quorum {
				info.Foreign = of.Foreign
			}
		}
	}
	for _, on := range holders {
		if most(len(on)) {
			info.Holders = append(info.Holders, l.holder(on, most))
		}
	}
	slices.SortFunc(info.Holders, func(a, b driver.Holder) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), strings.Compare(a.ID, b.ID))
	})
	return info
}

// holder returns the claim that these nodes know.
func (l *Locker) holder(on []driver.Holder, most func(int) bool) driver.Holder {
	slices.SortFunc(on, func(a, b driver.Holder) int { return cmp.Compare(leftOrForever(b.Left), leftOrForever(a.Left)) })
	h := on[0]
	h.Left = on[min(l.quorum, len(on))-1].Left // until it has no majority
	h.Nodes = len(on)
	// A node that has granted the claim late may have it under another fence for a moment.
	same, _ := mostCommon(on, func(a, b driver.Holder) bool { return a.Fence == b.Fence })
	h.Fence = same.Fence
	held := 0
	for _, other := range on {
		if !other.Kept {
			held++
		}
	}
	h.Kept = !most(held)
	return h
}

// Marked implements driver.Inspector: the work is done, even if few nodes know it.
func (l *Locker) Marked(ctx context.Context, keys []string) ([]bool, error) {
	return readEach(ctx, l, driver.OpInspect, keys, inspectGrace, func(ctx context.Context, n driver.Inspector) ([]bool, error) {
		return n.Marked(ctx, keys)
	}, func(a, b bool) bool { return a || b })
}

// A page is a part of the keys of a node, and the cursor of the next part.
type page struct {
	keys []string
	next string
}

// Keys implements driver.Inspector. It asks one node after the other, until it has asked so many
// that each lease is on one of them. It leaves out a key that an earlier one of these has. So it
// may miss a key that was acquired just before, if an earlier node gets that while Keys is under
// way.
func (l *Locker) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	spare := len(l.nodes) - l.quorum
	at, failed, of, err := parseCursor(cursor, l.quorum, spare)
	if err == nil {
		err = contextEnded(ctx, driver.OpInspect, prefix)
	}
	if err != nil {
		return nil, "", err
	}
	var got []reply[page]
	for first := at; ; at, of = at+1, "" {
		got = append(got, ask(ctx, l.nodes[at:at+1], driver.OpInspect, prefix, func(ctx context.Context, i driver.Inspector) (p page, err error) {
			p.keys, p.next, err = i.Keys(ctx, prefix, of, n)
			return p, err
		}, everyone)...)
		if ctx.Err() != nil || len(got)-answered(got)+failed == l.quorum {
			return nil, "", noQuorum(ctx, driver.OpInspect, prefix, l.nodes[first:at+1], got)
		}
		last := got[len(got)-1]
		if last.err != nil {
			continue
		}
		failed += len(got) - 1
		keys, next = l.onlyHere(ctx, last.value.keys, at), last.value.next
		if next == "" {
			if at-failed == spare {
				return keys, "", nil
			}
			at++
		}
		return keys, fmt.Sprintf(cursorFormat, at, failed, next), nil
	}
}

// cursorFormat is the node at which a page begins, how many nodes before it have failed, and the
// cursor of the node.
const cursorFormat = "%d %d %q"

// parseCursor returns what cursorFormat names. Fewer nodes than a quorum can fail, and no more than
// spare can have answered before.
func parseCursor(cursor string, quorum, spare int) (at, failed int, of string, err error) {
	if cursor == "" {
		return 0, 0, "", nil
	}
	_, err = fmt.Sscanf(cursor, cursorFormat, &at, &failed, &of)
	if err == nil && 0 <= failed && failed < quorum && 0 <= at-failed && at-failed <= spare {
		return at, failed, of, nil
	}
	return 0, 0, "", &driver.SettingError{Setting: "cursor", Value: cursor, Reason: "is not one that this backend has returned"}
}

// looksAtOnce bounds how many keys are looked for on other nodes at a time.
const looksAtOnce = 32

// onlyHere returns the keys that none of the nodes before that one has.
func (l *Locker) onlyHere(ctx context.Context, keys []string, at int) []string {
	found := make([]bool, len(keys))
	slots := make(chan struct{}, looksAtOnce)
	var all sync.WaitGroup
	for i, key := range keys {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			found[i] = slices.ContainsFunc(known(ask(ctx, l.nodes[:at], driver.OpInspect, key, show(key), everyone)),
				func(info driver.KeyInfo) bool { return info.State() != driver.KeyFree })
		})
	}
	all.Wait()
	i := -1
	return slices.DeleteFunc(keys, func(string) bool { i++; return found[i] })
}

// Break implements driver.Inspector. It returns true if the claim has lost the key on a majority of
// the nodes. If that is not known, because nodes have failed, it returns an error.
func (l *Locker) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	if err := contextEnded(ctx, driver.OpInspect, key); err != nil {
		return false, err
	}
	got := ask(ctx, l.nodes, driver.OpInspect, key, func(ctx context.Context, n driver.Inspector) (a driver.Answer, err error) {
		a.Held, err = n.Break(ctx, key, id, b)
		return a, err
	}, everyone)
	return l.held(ctx, driver.OpInspect, key, got)
}

// Forget implements driver.Inspector. A marker on one node is enough for the work to count as done.
// So Forget returns an error, after it has removed the others, if a node has failed that may have
// one.
func (l *Locker) Forget(ctx context.Context, key string) (bool, error) {
	if err := contextEnded(ctx, driver.OpInspect, key); err != nil {
		return false, err
	}
	got := ask(ctx, l.nodes, driver.OpInspect, key, func(ctx context.Context, n driver.Inspector) (bool, error) {
		return n.Forget(ctx, key)
	}, everyone)
	if answered(got) < len(l.nodes) {
		return false, noQuorum(ctx, driver.OpInspect, key, l.nodes, got)
	}
	return slices.Contains(known(got), true), nil
}

// ask asks the nodes at once for what only some backends can do.
func ask[A, T any](
	ctx context.Context, nodes []*node, op driver.Op, key string, call func(context.Context, A) (T, error), enough decision[T],
) []reply[T] {
	return gather(ctx, nodes, inspectTimeout, func(ctx context.Context, n *node) (value T, err error) {
		a, ok := n.Locker.(A)
		if !ok {
			return value, &driver.StoreError{Backend: n.name, Op: op, Key: key, Kind: driver.KindUnsupported, Err: unsupported[op]}
		}
		if err = n.begin(op, key); err != nil {
			return value, err
		}
		defer func() { n.end(err) }()
		return call(ctx, a)
	}, enough)
}

// askMajority asks all nodes. It returns their answers when all have come, or when a majority has
// answered and the grace is over. It returns an error if there can be no majority.
func askMajority[A, T any](
	ctx context.Context, l *Locker, op driver.Op, key string, grace time.Duration, call func(context.Context, A) (T, error),
) ([]T, error) {
	if err := contextEnded(ctx, op, key); err != nil {
		return nil, err
	}
	got := ask(ctx, l.nodes, op, key, call, func(got []reply[T], late bool) (bool, time.Duration) {
		n := answered(got)
		if n < l.quorum && len(got)-n <= len(l.nodes)-l.quorum {
			return false, 0
		}
		return late || grace == 0, grace
	})
	if answered(got) < l.quorum {
		return nil, noQuorum(ctx, op, key, l.nodes, got)
	}
	return known(got), nil
}

// readEach reads a list from each of the nodes, and returns what merge makes of the answers of a
// majority, for each of the keys.
func readEach[A, T any](
	ctx context.Context, l *Locker, op driver.Op, keys []string, grace time.Duration,
	read func(context.Context, A) ([]T, error), merge func(a, b T) T,
) ([]T, error) {
	answers, err := askMajority(ctx, l, op, keys[0], grace, read)
	if err != nil {
		return nil, err
	}
	all := make([]T, len(keys))
	for _, answer := range answers {
		for i, of := range answer {
			all[i] = merge(all[i], of)
		}
	}
	return all, nil
}
