package guard_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestMissedWakeUp_isSetForACallThatWasNotNotified(t *testing.T) {
	type scene struct {
		store   *notifyingStore
		wake    func()
		release func() // the holder releases the key
	}
	for name, c := range map[string]struct {
		play func(s scene)
		want guard.GrantReason
	}{
		"notified": {play: func(s scene) {
			s.wake() // the subscription has begun
			time.Sleep(time.Minute)
			s.release()
			s.wake()
		}},
		"notified while it asks": {play: func(s scene) {
			s.wake()
			time.Sleep(time.Minute)
			s.wake() // too early
			s.release()
			s.wake()
		}},
		"not notified": {want: guard.GrantMissedWakeUp, play: func(s scene) {
			s.wake()
			time.Sleep(time.Minute)
			s.release()
		}},
		"notified of an earlier release only": {want: guard.GrantMissedWakeUp, play: func(s scene) {
			s.wake()
			time.Sleep(time.Minute)
			s.wake()
			time.Sleep(time.Minute)
			s.release()
		}},
		"the subscription never begins": {want: guard.GrantMissedWakeUp, play: func(s scene) {
			time.Sleep(time.Minute)
			s.release()
		}},
		"the subscription has not begun yet": {play: func(s scene) {
			time.Sleep(50 * time.Millisecond)
			s.release()
		}},
		"the holder has died": {want: guard.GrantTakeover, play: func(s scene) { s.wake() }},
	} {
		inTimeOf(t, name, func(t *testing.T) {
			var seen recorder
			store, release, ended := startWaiter(t, guard.WithHook(seen.hook()))
			c.play(scene{store, <-store.wakes, release})
			require.NoError(t, <-ended)
			granted := last[guard.AcquireEvent](t, &seen)
			require.Equal(t, c.want, granted.Grant)
		})
	}
}

func TestMissedWakeUp_isNotSetByAHandOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &notifyingStore{testStore: newTestStore(), wakes: make(chan func(), 1)}
		g := newGuard(t, store, guard.WithTTL(ttl))
		claim := store.acquireElsewhere(t, 5*time.Minute)
		var first, second recorder
		calls := newCallers(t, g)
		calls.start(t.Context(), time.Millisecond, guard.WithHook(first.hook()))
		calls.start(t.Context(), 0, guard.WithHook(second.hook()))
		time.Sleep(10 * time.Second)
		store.release(t, claim, driver.After{}) // without a notification
		calls.requireOrder(0, 1)
		require.Equal(t, guard.GrantMissedWakeUp, last[guard.AcquireEvent](t, &first).Grant)
		require.Equal(t, guard.GrantHandOff, last[guard.AcquireEvent](t, &second).Grant)
	})
}

func TestMissedWakeUp_isSetForTheStoresQueue(t *testing.T) {
	for _, silent := range []bool{false, true} {
		var seen recorder
		withFairGuards(t, 2, func(c *fairCalls) {
			c.store.silent = silent
			c.call(c.t.Context(), 0, time.Second)
			c.call(c.t.Context(), 1, 0, guard.WithHook(seen.hook()))
		})
		require.Equal(t, silent, last[guard.AcquireEvent](t, &seen).Grant == guard.GrantMissedWakeUp)
	}
	t.Run("the holder has died", func(t *testing.T) {
		var seen recorder
		withFairGuards(t, 1, func(c *fairCalls) {
			c.store.acquireElsewhere(t, 3*time.Second)
			c.call(c.t.Context(), 0, 0, guard.WithHook(seen.hook()))
		})
		require.Equal(t, guard.GrantTakeover, last[guard.AcquireEvent](t, &seen).Grant)
	})
}
