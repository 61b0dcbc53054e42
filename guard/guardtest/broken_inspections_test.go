package guardtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// An inspected is a server that can show its keys, that shares them, keeps a queue, and notifies
// subscribers. Its fields replace calls to make it a broken Inspector.
type inspected struct {
	*server

	shows   func(m *memory.Locker, info *driver.KeyInfo, key string)
	lists   func(m *memory.Locker, prefix, cursor string, n int) (keys []string, next string)
	breaks  func(m *memory.Locker, key, id string, b driver.Break) bool
	forgets func(m *memory.Locker, key string) bool
	// If silent, nobody is notified of what an operator frees. If freezes, it waits for a frozen
	// store whatever its context says.
	silent, freezes bool

	notifier *notifier
}

func (i *inspected) Describe() driver.Description {
	return driver.Description{Owners: true, Queue: true, Shares: func(int) error { return nil }}
}

func (i *inspected) Subscribe(key, id string, notify func(time.Duration)) (stop func()) {
	if id != "" {
		return i.data.Subscribe(key, id, notify)
	}
	return i.notifier.Subscribe(key, id, notify)
}

func (i *inspected) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	return i.notifier.Release(ctx, c, after)
}

// inspect asks the store.
func inspect[T any](ctx context.Context, i *inspected, key string, f func(context.Context, *memory.Locker) (T, error)) (T, error) {
	if i.freezes {
		ctx = context.WithoutCancel(ctx)
	}
	return ask(ctx, i.server, driver.OpInspect, driver.Claim{Key: key}, func(ctx context.Context, _ driver.Claim, m *memory.Locker) (T, error) {
		return f(ctx, m)
	})
}

func (i *inspected) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	return inspect(ctx, i, key, func(ctx context.Context, m *memory.Locker) (driver.KeyInfo, error) {
		info, err := m.Show(ctx, key)
		if i.shows != nil && err == nil {
			i.shows(m, &info, key)
		}
		return info, err
	})
}

func (i *inspected) Marked(ctx context.Context, keys []string) ([]bool, error) {
	return inspect(ctx, i, keys[0], func(ctx context.Context, m *memory.Locker) ([]bool, error) { return m.Marked(ctx, keys) })
}

func (i *inspected) Keys(ctx context.Context, prefix, cursor string, n int) (keys []string, next string, err error) {
	_, err = inspect(ctx, i, prefix, func(ctx context.Context, m *memory.Locker) (struct{}, error) {
		keys, next, err = m.Keys(ctx, prefix, cursor, n)
		if i.lists != nil && err == nil {
			keys, next = i.lists(m, prefix, cursor, n)
		}
		return struct{}{}, err
	})
	return keys, next, err
}

func (i *inspected) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	broken, err := inspect(ctx, i, key, func(ctx context.Context, m *memory.Locker) (bool, error) {
		if i.breaks != nil && ctx.Err() == nil {
			return i.breaks(m, key, id, b), nil
		}
		return m.Break(ctx, key, id, b)
	})
	if !i.silent {
		i.notifier.wakeAll()
	}
	return broken, err
}

func (i *inspected) Forget(ctx context.Context, key string) (bool, error) {
	forgotten, err := inspect(ctx, i, key, func(ctx context.Context, m *memory.Locker) (bool, error) {
		if i.forgets != nil && ctx.Err() == nil {
			return i.forgets(m, key), nil
		}
		return m.Forget(ctx, key)
	})
	if !i.silent {
		i.notifier.wakeAll()
	}
	return forgotten, err
}

// inspecting returns a backend with an Inspector that change has broken.
func inspecting(change func(i *inspected)) guardtest.Backend {
	data := &server{}
	s := serverBackend(data, func(guard.Locker) guard.Locker {
		i := &inspected{server: data, notifier: newNotifier(data, true, true, true)}
		change(i)
		return i
	})
	s.Inspects, s.Notifies, s.Queues, s.Shares = true, true, true, []int{2, driver.Unlimited}
	return s
}

func TestRun_passesAGoodBackendThatInspects(t *testing.T) {
	guardtest.Run(t, inspecting(func(*inspected) {}))
}

const (
	showsFree          = "a key that is free is shown as free"
	showsHolder        = "the holder of a key is shown"
	showsWhatIsLeft    = "a minimum hold and a done marker are shown"
	showsSharers       = "the holders of a shared key, and the claim that is wanted, are shown"
	showsQueue         = "the queue of a key is shown"
	listsKeys          = "keys are listed by prefix, page by page"
	breaksClaim        = "a broken claim loses its key, which is kept until its time is over"
	breaksNoOther      = "only the claim of that ID is broken"
	breaksSharer       = "a broken claim of a shared key counts as a holder until its time is over"
	breaksNow          = "a key that is freed now is free"
	breaksSharerNow    = "a claim of a shared key that is freed now makes way for another"
	forgetsMarker      = "a done marker that is forgotten is gone, and nothing else"
	breakNotifies      = "waiters are notified when a key is freed now"
	breakNotifiesQueue = "the queue is notified when a key is freed now"
	endedInspection    = "an inspection whose context has ended changes nothing"
	frozenInspection   = "an inspection of a frozen store returns when its context ends"
)

// shown is inspecting with an Inspector that shows something else.
func shown(change func(info *driver.KeyInfo)) guardtest.Backend {
	return inspecting(func(i *inspected) { i.shows = func(_ *memory.Locker, info *driver.KeyInfo, _ string) { change(info) } })
}

// ofHolders changes the holders that are shown.
func ofHolders(change func(h *driver.Holder)) guardtest.Backend {
	return shown(func(info *driver.KeyInfo) {
		for i := range info.Holders {
			change(&info.Holders[i])
		}
	})
}

// breaking is inspecting with an Inspector that breaks claims in another way.
func breaking(breaks func(m *memory.Locker, key, id string, b driver.Break) bool) guardtest.Backend {
	return inspecting(func(i *inspected) { i.breaks = breaks })
}

// must is the result of a call to a store in memory, which has no errors.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func brokenInspections() []broken {
	ctx := context.Background()
	// anyHolder breaks whoever holds the key.
	anyHolder := func(m *memory.Locker, key, _ string, b driver.Break) (broken bool) {
		for _, h := range must(m.Show(ctx, key)).Holders {
			broken = must(m.Break(ctx, key, h.ID, b)) || broken
		}
		return broken
	}
	return []broken{
		{"a free key has a holder", shown(func(info *driver.KeyInfo) {
			if len(info.Holders) == 0 {
				info.Holders = []driver.Holder{{ID: "nobody"}}
			}
		}), []string{showsFree}},
		{"the ID is not shown", ofHolders(func(h *driver.Holder) { h.ID = "" }), []string{showsHolder, showsWhatIsLeft}},
		{"the label is cut", ofHolders(func(h *driver.Holder) { h.Label = h.Label[:4] }), []string{showsHolder, showsWhatIsLeft}},
		{"another fence is shown", ofHolders(func(h *driver.Holder) { h.Fence++ }), []string{showsHolder, showsWhatIsLeft}},
		{"the time that is left is not shown", ofHolders(func(h *driver.Holder) { h.Left = 0 }), []string{showsHolder}},
		{"a minimum hold is shown as a lease", ofHolders(func(h *driver.Holder) { h.Kept = false }), []string{showsWhatIsLeft}},
		{"all seats are shown as the first", ofHolders(func(h *driver.Holder) { h.Seat = min(h.Seat, 1) }), []string{showsSharers}},
		{"the size of the record is not shown", shown(func(info *driver.KeyInfo) {
			if info.Marker != nil {
				info.Marker.Size = 0
			}
		}), []string{showsWhatIsLeft}},
		{"one holder is shown", shown(func(info *driver.KeyInfo) { info.Holders = info.Holders[:min(len(info.Holders), 1)] }), []string{showsSharers}},
		{"the claim that is wanted is not shown", shown(func(info *driver.KeyInfo) { info.Wanted = "" }), []string{showsSharers}},
		{"the queue is shown backwards", shown(func(info *driver.KeyInfo) {
			if n := len(info.Queue); n > 1 {
				info.Queue[0], info.Queue[n-1] = info.Queue[n-1], info.Queue[0]
			}
		}), []string{showsQueue}},
		{"the prefix is ignored", inspecting(func(i *inspected) {
			i.lists = func(m *memory.Locker, _, cursor string, n int) (keys []string, next string) {
				keys, next, _ = m.Keys(ctx, "", cursor, n)
				return keys, next
			}
		}), []string{listsKeys}},
		{"only the first page is listed", inspecting(func(i *inspected) {
			i.lists = func(m *memory.Locker, prefix, cursor string, n int) (keys []string, next string) {
				keys, _, _ = m.Keys(ctx, prefix, cursor, n)
				return keys, ""
			}
		}), []string{listsKeys}},
		{"a break frees the key at once", breaking(func(m *memory.Locker, key, id string, b driver.Break) bool {
			b.Now = true
			return must(m.Break(ctx, key, id, b))
		}), []string{breaksClaim, breaksSharer, breaksNoOther}},
		{"nobody loses a key", breaking(func(m *memory.Locker, key, id string, b driver.Break) bool {
			for _, h := range must(m.Show(ctx, key)).Holders {
				if h.ID == id || h.Kept && h.ID == b.ID {
					return !h.Kept
				}
			}
			return false
		}), []string{breaksClaim, breaksSharer, breaksNow, breaksSharerNow, breakNotifiesQueue}},
		{"any holder is broken", breaking(anyHolder), []string{breaksNoOther, breaksNow}},
		{"what is freed now is kept", breaking(func(m *memory.Locker, key, id string, b driver.Break) bool {
			b.Now = false
			return must(m.Break(ctx, key, id, b))
		}), []string{breaksNow, breakNotifiesQueue}},
		{"freeing a shared key frees it from all", breaking(func(m *memory.Locker, key, id string, b driver.Break) bool {
			if b.Now {
				return anyHolder(m, key, id, b)
			}
			return must(m.Break(ctx, key, id, b))
		}), []string{breaksSharerNow}},
		{"any key is forgotten", inspecting(func(i *inspected) {
			i.forgets = func(m *memory.Locker, key string) bool {
				return must(m.Forget(ctx, key)) || anyHolder(m, key, "", driver.Break{Now: true})
			}
		}), []string{forgetsMarker}},
		{"a done marker stays", inspecting(func(i *inspected) {
			i.forgets = func(m *memory.Locker, key string) bool { return must(m.Show(ctx, key)).Marker != nil }
		}), []string{forgetsMarker}},
		{"nobody is notified", inspecting(func(i *inspected) { i.silent = true }), []string{breakNotifies}},
		{"an ended context is ignored", inspecting(func(i *inspected) { i.freezes = true }), []string{endedInspection, frozenInspection}},
	}
}

var _ driver.Inspector = (*inspected)(nil)
