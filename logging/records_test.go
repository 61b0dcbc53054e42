package logging_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// times returns how often a message was logged.
func (s *site) times(message string) int {
	return strings.Count(s.log.String(), fmt.Sprintf("msg=%q", message))
}

func TestRecords_tellsOfALongWaitWheneverItHasDoubled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, guard.WithName("report"))
		lease, err := s.one.Acquire(t.Context(), "k")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		require.Error(t, s.other.Do(ctx, "k", nothing, guard.WithWait(guard.Forever)))
		require.Equal(t, 4, s.times("wait is long"), "after 30 s, 1, 2 and 4 min")
		time.Sleep(time.Hour)
		require.Equal(t, 4, s.times("wait is long"), "it waits no more")
		require.NoError(t, lease.Release(t.Context()))
		s.close(t)
	})
}

// A store that is away must not flood the log. Its consequences must still be visible there.
func TestRecords_tellsOfAStoreThatIsAwayLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, guard.WithName("report"))
		away := true
		s.store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
			if away {
				return driver.Answer{}, guardtest.Fail(driver.KindAuth)
			}
			return s.inner.TryAcquire(ctx, c)
		}
		s.store.OnRelease = func(context.Context, int, driver.Claim, driver.After) (bool, error) {
			return false, guardtest.Fail(driver.KindAuth)
		}
		for range 1000 {
			require.ErrorIs(t, s.one.Do(t.Context(), "k", nothing), guard.ErrStore)
		}
		time.Sleep(time.Minute)
		warnings := s.times("store cannot be asked")
		require.GreaterOrEqual(t, warnings, 10, "the first, second, fourth … of a thousand")
		require.LessOrEqual(t, warnings, 13)
		away = false
		s.store.OnRelease = nil
		require.NoError(t, s.one.Do(t.Context(), "k", nothing))
		require.Equal(t, 1, s.times("store answers again"))
		s.close(t)
	})
}

func TestRecords_tellsOfRenewalsThatFailLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, guard.WithName("report"))
		tries := 0
		s.store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) {
			tries++
			return false, guardtest.Fail(driver.KindConnection)
		}
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
		s.close(t)
		require.Greater(t, tries, 6)
		require.Less(t, s.times("renewal failed"), 5)
		require.Equal(t, 1, s.times("lease lost"))
	})
}

// What an adapter refuses because of a mistake in the setup is logged with its cause, at warn.
func TestRecords_tellsOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, guard.WithName("claim"))
		s.one.Adapter().Report(t.Context(), guard.Outcome{Adapter: "http", Result: "refused", Refused: errors.New("the scope is empty")})
		s.one.Adapter().Report(t.Context(), guard.Outcome{Adapter: "http", Result: "key_missing", Err: errors.New("no key")})
		require.Equal(t, 1, s.times("work refused"))
		require.Contains(t, s.log.String(), `level=WARN msg="work refused"`)
		require.Contains(t, s.log.String(), "the scope is empty")
		s.close(t)
	})
}

// What makes a store lose leases is logged at warn, with the reason.
func TestRecords_tellsOfAStoreThatMayLoseLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, guard.WithName("claim"))
		s.hook.Warn(t.Context(), errors.New("it evicts leases"))
		require.Equal(t, 1, s.times("store may lose leases"))
		require.Contains(t, s.log.String(), `level=WARN msg="store may lose leases"`)
		require.Contains(t, s.log.String(), "it evicts leases")
		s.close(t)
	})
}
