package guardgocron_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/linetest"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
)

// What go-co-op/gocron v2 asks for.
type (
	gocronLock interface {
		Unlock(ctx context.Context) error
	}
	gocronLocker interface {
		Lock(ctx context.Context, key string) (gocronLock, error)
	}
	gocronElector interface {
		IsLeader(context.Context) error
	}
)

var (
	_ gocronLocker  = (*guardgocron.Locker[gocronLock])(nil)
	_ gocronElector = (*guardgocron.Elector)(nil)
)

// A line is a process's way to the store.
type line struct {
	linetest.Line

	cut atomic.Bool
}

func newLine(store *memory.Locker) *line {
	l := &line{}
	l.Line = linetest.Line{Locker: store, Ask: func(_ context.Context, c linetest.Call) error {
		if l.cut.Load() {
			return driver.NewStoreError("memory", c.Op, c.Key, errors.New("the line is cut"))
		}
		return nil
	}}
	return l
}

// guards returns n of them over one store, in a bubble.
func guards(t *testing.T, n int, opts ...guard.Option) ([]*guard.Guard, []*line) {
	t.Helper()
	store := memory.New()
	var all []*guard.Guard
	var lines []*line
	for range n {
		l := newLine(store)
		g, err := guard.New(l, append([]guard.Option{guard.WithNamespace("test")}, opts...)...)
		require.NoError(t, err)
		t.Cleanup(func() {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = g.Close(over)
		})
		all, lines = append(all, g), append(lines, l)
	}
	return all, lines
}

func TestLocker_isALease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 2)
		a, b := newLocker(t, g[0]), newLocker(t, g[1])
		ctx, cancel := context.WithCancel(context.Background())
		lock, err := a.Lock(ctx, "report")
		require.NoError(t, err)
		refused, err := b.Lock(t.Context(), "report")
		require.ErrorIs(t, err, guard.ErrBusy)
		require.ErrorContains(t, err, `guardgocron: lock "report"`)
		require.Nil(t, refused)
		cancel()
		time.Sleep(time.Hour) // virtual time
		_, err = b.Lock(t.Context(), "report")
		require.ErrorIs(t, err, guard.ErrBusy, "it is renewed, also after the end of the context")
		require.NoError(t, g[1].Do(t.Context(), "report", func(context.Context) error { return nil }), "keys of others are others")
		begun := time.Now()
		require.NoError(t, lock.Unlock(ctx), "which has ended, as that of gocron when it shuts down")
		require.Zero(t, time.Since(begun))
		lock, err = b.Lock(t.Context(), "report")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestLocker_optionsOfTheLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 2)
		a := newLocker(t, g[0], guard.WithMinHold(5*time.Second))
		b := newLocker(t, g[1], guard.WithMinHold(5*time.Second))
		lock, err := a.Lock(t.Context(), "report")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(4 * time.Second) // virtual time
		_, err = b.Lock(t.Context(), "report")
		require.ErrorIs(t, err, guard.ErrBusy, "a clock that is late")
		time.Sleep(time.Second) // virtual time
		lock, err = b.Lock(t.Context(), "report")
		require.NoError(t, err, "the next tick")
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// newLocker returns a Locker of the options.
func newLocker(t *testing.T, g *guard.Guard, opts ...guard.Option) *guardgocron.Locker[gocronLock] {
	t.Helper()
	l, err := guardgocron.NewLocker[gocronLock](g, opts...)
	require.NoError(t, err)
	return l
}

func TestNewLocker_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := guardgocron.NewLocker[gocronLock](nil)
	require.Equal(t, []string{"guard"}, settings(err))
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(t.Context())) }()
	_, err = guardgocron.NewLocker[interface{ Unlock() error }](g)
	require.Equal(t, []string{"L"}, settings(err))
	require.ErrorContains(t, err, "interface { Unlock() error }")
	_, err = guardgocron.NewLocker[int](g)
	require.Equal(t, []string{"L"}, settings(err))
	_, err = guardgocron.NewLocker[gocronLock](g, guard.WithTTL(0))
	require.Equal(t, []string{"WithTTL"}, settings(err))
}

// The end of the context ends a wait without a bound, as that of gocron's Shutdown does. The key is
// free for others then.
func TestLocker_theEndOfTheContextEndsTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 2)
		held, err := newLocker(t, g[0]).Lock(t.Context(), "report")
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() { assert.NoError(t, held.Unlock(t.Context())) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = newLocker(t, g[1], guard.WithWait(guard.Forever)).Lock(ctx, "report")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Hour) // virtual time
		lock, err := newLocker(t, g[0]).Lock(t.Context(), "report")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

func TestElector_oneLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, lines := guards(t, 3, guard.WithTTL(10*time.Second))
		var electors []*guardgocron.Elector
		for _, g := range g {
			e, err := guardgocron.NewElector(g, "reports")
			require.NoError(t, err)
			electors = append(electors, e)
		}
		leader := func() (leaders []int) {
			for i, e := range electors {
				err := e.IsLeader(t.Context())
				if err == nil {
					leaders = append(leaders, i)
					continue
				}
				require.ErrorIs(t, err, guard.ErrBusy)
				require.ErrorContains(t, err, "another process is the leader")
			}
			return leaders
		}
		for range 10 {
			require.Equal(t, []int{0}, leader())
			time.Sleep(time.Minute) // virtual time
		}
		require.NoError(t, electors[0].Close(t.Context()))
		require.NoError(t, electors[0].Close(t.Context()), "twice")
		require.ErrorIs(t, electors[0].IsLeader(t.Context()), guard.ErrClosed)
		electors = electors[1:]
		time.Sleep(250 * time.Millisecond) // virtual time: memory notifies nobody
		first := leader()
		require.Len(t, first, 1, "at once")
		if first[0] == 1 { // either of them
			electors[0], electors[1], lines[1] = electors[1], electors[0], lines[2]
		}

		// The leader loses its lease.
		lines[1].cut.Store(true)
		time.Sleep(30 * time.Second) // virtual time
		require.ErrorIs(t, electors[0].IsLeader(t.Context()), guard.ErrStore)
		require.NoError(t, electors[1].IsLeader(t.Context()))
		lines[1].cut.Store(false)
		time.Sleep(2 * time.Second) // virtual time: it asks again
		require.Equal(t, []int{1}, leader(), "and is none when it is back")
		require.NoError(t, electors[1].Close(t.Context()))
		time.Sleep(250 * time.Millisecond) // virtual time
		require.NoError(t, electors[0].IsLeader(t.Context()), "but can be it again")
		require.NoError(t, electors[0].Close(t.Context()))
	})
}

func TestElector_theEndOfACallIsNotThatOfTheLeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 2)
		a, err := guardgocron.NewElector(g[0], "reports")
		require.NoError(t, err)
		b, err := guardgocron.NewElector(g[1], "reports")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		require.NoError(t, a.IsLeader(ctx))
		cancel()
		time.Sleep(time.Hour) // virtual time
		require.ErrorIs(t, b.IsLeader(t.Context()), guard.ErrBusy)
		require.NoError(t, a.IsLeader(t.Context()))
		other, err := guardgocron.NewElector(g[1], "others")
		require.NoError(t, err)
		require.NoError(t, other.IsLeader(t.Context()), "names are apart")
		require.NoError(t, other.Close(t.Context()))
		require.NoError(t, a.Close(t.Context()))
	})
}

// An operator may correct an error that asking again cannot help, such as a wrong password.
func TestElector_asksAgainAfterAPermanentError(t *testing.T) {
	t.Parallel()
	for _, kind := range []driver.StoreErrorKind{driver.KindAuth, driver.KindUnsupported, driver.KindSettings} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var refuses atomic.Bool
				var asked atomic.Int64
				refuses.Store(true)
				locker := linetest.Line{Locker: memory.New(), Ask: func(_ context.Context, c linetest.Call) error {
					if c.Op == driver.OpAcquire {
						asked.Add(1)
					}
					if refuses.Load() {
						return guardtest.Fail(kind)
					}
					return nil
				}}
				g, err := guard.New(locker, guard.WithNamespace("test"))
				require.NoError(t, err)
				e, err := guardgocron.NewElector(g, "reports")
				require.NoError(t, err)
				for tick := range 10 {
					require.ErrorIs(t, e.IsLeader(t.Context()), guard.ErrStore)
					require.EqualValues(t, tick+1, asked.Load(), "each tick asks once")
					time.Sleep(time.Minute) // virtual time
				}
				refuses.Store(false)
				require.NoError(t, e.IsLeader(t.Context()))
				require.NoError(t, e.Close(t.Context()))
				require.ErrorIs(t, e.IsLeader(t.Context()), guard.ErrClosed)
				require.NoError(t, g.Close(t.Context()))
			})
		})
	}
}

func TestNewElector_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	defer func() { require.NoError(t, g.Close(t.Context())) }()
	_, err = guardgocron.NewElector(nil, "reports")
	require.Equal(t, []string{"guard"}, settings(err))
	_, err = guardgocron.NewElector(g, "")
	require.Equal(t, []string{"name"}, settings(err))
	_, err = guardgocron.NewElector(g, "reports", guard.WithTTL(0))
	require.Equal(t, []string{"WithTTL"}, settings(err))
	_, err = guardgocron.NewElector(g, "{reports}")
	require.ErrorContains(t, err, "brace")
}

func TestLocker_withFairIsServedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := guards(t, 2)
		var ran []int
		var want []int
		var all sync.WaitGroup
		for i := range 8 {
			want = append(want, i)
			l := newLocker(t, g[i/2%2], guard.WithFair(), guard.WithWait(time.Minute))
			all.Go(func() {
				lock, err := l.Lock(t.Context(), "report")
				assert.NoError(t, err)
				ran = append(ran, i)
				time.Sleep(time.Second) // virtual time
				assert.NoError(t, lock.Unlock(t.Context()))
			})
			synctest.Wait()
		}
		all.Wait()
		require.Equal(t, want, ran)
	})
}

// settings returns those that an error names.
func settings(err error) []string {
	var setting *guard.SettingError
	if !errors.As(err, &setting) {
		return nil
	}
	return []string{setting.Setting}
}
