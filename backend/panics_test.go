package backend_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A rogue is a Locker that calls fault in the operation of that name.
type rogue struct {
	*memory.Locker
	in    atomic.Value // a string
	fault func()
}

func (r *rogue) fails(in string) {
	if r.in.Load() == in {
		r.fault()
	}
}

func (r *rogue) TryAcquire(ctx context.Context, c driver.Claim) (driver.Answer, error) {
	r.fails("TryAcquire")
	return r.Locker.TryAcquire(ctx, c)
}

func (r *rogue) Renew(ctx context.Context, c driver.Claim) (bool, error) {
	r.fails("Renew")
	return r.Locker.Renew(ctx, c)
}

func (r *rogue) Release(ctx context.Context, c driver.Claim, after driver.After) (bool, error) {
	r.fails("Release")
	return r.Locker.Release(ctx, c, after)
}

func (r *rogue) Append(ctx context.Context, name string, e driver.Entry, keep int) error {
	r.fails("Append")
	return r.Locker.Append(ctx, name, e, keep)
}

func (r *rogue) EntriesOf(ctx context.Context, names []string, n int) ([][]driver.Entry, error) {
	r.fails("Entries")
	return r.Locker.EntriesOf(ctx, names, n)
}

func (r *rogue) CountersOf(ctx context.Context, names, counters []string) ([]int64, error) {
	r.fails("Raise")
	return r.Locker.CountersOf(ctx, names, counters)
}

func (r *rogue) Raise(ctx context.Context, name, counter string, to int64) (int64, error) {
	r.fails("Raise")
	return r.Locker.Raise(ctx, name, counter, to)
}

func (r *rogue) Show(ctx context.Context, key string) (driver.KeyInfo, error) {
	r.fails("Show")
	return r.Locker.Show(ctx, key)
}

func (r *rogue) Keys(ctx context.Context, prefix, cursor string, n int) ([]string, string, error) {
	r.fails("Keys")
	return r.Locker.Keys(ctx, prefix, cursor, n)
}

func (r *rogue) Break(ctx context.Context, key, id string, b driver.Break) (bool, error) {
	r.fails("Break")
	return r.Locker.Break(ctx, key, id, b)
}

func (r *rogue) Forget(ctx context.Context, key string) (bool, error) {
	r.fails("Forget")
	return r.Locker.Forget(ctx, key)
}

func (r *rogue) Describe() driver.Description {
	d := r.Locker.Describe()
	d.ServerID = func(context.Context) (string, error) {
		r.fails("ServerID")
		return fmt.Sprintf("%p", r), nil
	}
	return d
}

func (r *rogue) Warnings(context.Context) []error {
	r.fails("Warnings")
	return nil
}

// A starting rogue has the calls that answer later.
type starting struct{ *rogue }

func (s starting) Start(
	ctx context.Context, op driver.Op, claims []driver.Claim, after driver.After, done func(i int, a driver.Answer, err error),
) {
	in := "Start " + string(op)
	for i, c := range claims {
		if i == len(claims)-1 {
			s.fails(in)
		}
		go func() {
			a, err := driver.Call(ctx, s.Locker, op, c, after)
			done(i, a, err)
		}()
	}
}

var rogueCalls = map[string]func(ctx context.Context, l guard.Locker) error{
	"TryAcquire": func(ctx context.Context, l guard.Locker) error {
		_, err := l.TryAcquire(ctx, claimed("new"))
		return err
	},
	"Renew": func(ctx context.Context, l guard.Locker) error {
		_, err := l.Renew(ctx, claimed("k"))
		return err
	},
	"Start renew": func(ctx context.Context, l guard.Locker) (err error) {
		driver.Await(ctx, l, driver.OpRenew, []driver.Claim{claimed("k"), claimed("other")}, driver.After{}, func(i int, _ driver.Answer, e error) {
			if i == 1 {
				err = e
			}
		})
		return err
	},
	"Release": func(ctx context.Context, l guard.Locker) error {
		_, err := l.Release(ctx, claimed("k"), driver.After{Keep: time.Minute})
		return err
	},
	"Append": func(ctx context.Context, l guard.Locker) error {
		ledger, _ := l.(driver.Ledger)
		return ledger.Append(ctx, "log", driver.Entry{At: 1, Record: []byte("r")}, 10)
	},
	"Entries": func(ctx context.Context, l guard.Locker) error {
		ledger, _ := l.(driver.Ledger)
		_, err := driver.Entries(ctx, ledger, "log", 10)
		return err
	},
	"Raise": func(ctx context.Context, l guard.Locker) error {
		ledger, _ := l.(driver.Ledger)
		_, err := ledger.Raise(ctx, "log", "counter", 1)
		return err
	},
	"Show": func(ctx context.Context, l guard.Locker) error {
		i, _ := l.(driver.Inspector)
		_, err := i.Show(ctx, "k")
		return err
	},
	"Keys": func(ctx context.Context, l guard.Locker) error {
		i, _ := l.(driver.Inspector)
		_, _, err := i.Keys(ctx, "", "", 10)
		return err
	},
	"Break": func(ctx context.Context, l guard.Locker) error {
		i, _ := l.(driver.Inspector)
		_, err := i.Break(ctx, "k", claimed("k").ID, driver.Break{})
		return err
	},
	"Forget": func(ctx context.Context, l guard.Locker) error {
		i, _ := l.(driver.Inspector)
		_, err := i.Forget(ctx, "k")
		return err
	},
	"Warnings": func(ctx context.Context, l guard.Locker) error {
		w, _ := l.(driver.Warner)
		if all := w.Warnings(ctx); len(all) > 0 {
			return all[0]
		}
		return nil
	},
}

func claimed(key string) driver.Claim {
	return driver.Claim{Key: key, ID: key + "ID", Owner: key + "ID", TTL: time.Minute, Fence: 1}
}

// rogueOperations are the operations of a node, and the call of the quorum that uses each.
var rogueOperations = map[string]string{"Start acquire": "TryAcquire", "Start release": "Release", "ServerID": "TryAcquire"}

var faults = map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit}

func TestQuorum_containsNodesThatPanicOrEndTheirGoroutines(t *testing.T) {
	operations := []string{"Start acquire", "Start release", "ServerID"}
	for call := range rogueCalls {
		operations = append(operations, call)
	}
	for _, operation := range operations {
		for fault, f := range faults {
			for _, rogues := range []int{1, 2, 3} {
				t.Run(fmt.Sprintf("%s of %d in %s", fault, rogues, operation), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						var nodes []driver.Locker
						var all []*rogue
						for range 3 {
							r := &rogue{Locker: memory.New(), fault: f}
							all = append(all, r)
							switch operation {
							case "Start acquire", "Start release", "Start renew":
								nodes = append(nodes, starting{r})
							default:
								nodes = append(nodes, r)
							}
						}
						l := redlock.New(nodes)
						call := rogueCalls[operation]
						if other := rogueOperations[operation]; other != "" {
							call = rogueCalls[other]
						}
						if operation != "ServerID" {
							for _, key := range []string{"k", "other"} {
								c := claimed(key)
								c.Fence = 0
								_, err := l.TryAcquire(t.Context(), c)
								require.NoError(t, err)
							}
							synctest.Wait()
						}
						for _, r := range all[:rogues] {
							r.in.Store(operation)
						}
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
						defer cancel()
						// a node that ends the caller's own goroutine ends that
						ended, err := make(chan struct{}), errEnded
						go func() {
							defer close(ended)
							err = call(ctx, l)
						}()
						<-ended
						if err != errEnded { //nolint:errorlint // it is never wrapped
							requireContained(t, err, fault, rogues > 1 || operation == "Forget" || operation == "Warnings")
						} else {
							require.Contains(t, []string{"Start acquire", "Start release"}, operation)
						}
						for _, r := range all {
							r.in.Store("")
						}
						time.Sleep(2 * time.Minute) // what goes on in the background
						grant, err := l.TryAcquire(t.Context(), driver.Claim{Key: "new", ID: "later", Owner: "later", TTL: time.Minute})
						require.NoError(t, err)
						require.Equal(t, driver.Granted, grant.State)
						time.Sleep(time.Minute)
					})
				})
			}
		}
	}
}

var errEnded = errors.New("the call has ended its goroutine")

func requireContained(t *testing.T, err error, fault string, fails bool) {
	t.Helper()
	switch {
	case !fails:
		require.NoError(t, err)
	case fault == "panic":
		require.ErrorContains(t, err, "panicked: boom")
	default:
		require.ErrorContains(t, err, "ended its goroutine")
	}
}

func TestBoth_containsASideWhoseRenewalsPanicOrEndTheirGoroutines(t *testing.T) {
	for fault, f := range faults {
		for at := range 2 {
			for _, operation := range []string{"Renew", "Start renew"} {
				t.Run(fmt.Sprintf("%s of side %d in %s", fault, at, operation), func(t *testing.T) {
					sides := [2]*rogue{{Locker: memory.New(), fault: f}, {Locker: memory.New(), fault: f}}
					type plain struct{ driver.Locker } // has no batches
					l := both.New(plain{sides[0]}, plain{sides[1]})
					if operation == "Start renew" {
						l = both.New(starting{sides[0]}, starting{sides[1]})
					}
					for _, key := range []string{"k", "other"} {
						_, err := l.TryAcquire(t.Context(), claimed(key))
						require.NoError(t, err)
					}
					sides[at].in.Store(operation)
					requireContained(t, rogueCalls["Start renew"](t.Context(), l), fault, true)
				})
			}
		}
	}
}
