package tracing_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest/faultmetrics"
)

// The fault report (proof fault) goes by the words of package faultmetrics: they are those of the
// real metrics.
func TestMetrics_areWhatTheFaultReportTakesThemFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report := faultmetrics.New()
		s := newSite(t, newTelescope(t), guard.WithName("report"), guard.WithHook(report.Hook))
		fails := func(kind driver.StoreErrorKind) { // once, for each call
			s.store.OnAcquire = func(ctx context.Context, n int, c driver.Claim) (driver.Answer, error) {
				if n == 1 {
					return driver.Answer{}, guardtest.Fail(kind)
				}
				return s.inner.TryAcquire(ctx, c)
			}
			s.store.OnRenew = func(ctx context.Context, n int, c driver.Claim) (bool, error) {
				if n == 1 {
					return false, guardtest.Fail(kind)
				}
				return s.inner.Renew(ctx, c)
			}
			s.store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
				if n == 1 {
					return false, guardtest.Fail(kind)
				}
				return s.inner.Release(ctx, c, after)
			}
		}
		fails(driver.KindConnection)
		require.NoError(t, s.one.Do(t.Context(), "k", sleeps(8*time.Second)))
		s.store.OnRenew = func(context.Context, int, driver.Claim) (bool, error) { return false, nil }
		require.ErrorIs(t, s.one.Do(t.Context(), "k", func(ctx context.Context) error { <-ctx.Done(); return nil }), guard.ErrLost)
		require.ErrorIs(t, s.one.Do(t.Context(), "expires", func(ctx context.Context) error { <-ctx.Done(); return nil }, guard.WithoutRenewal()), guard.ErrLost)
		for _, hook := range []guard.Hook{s.hook, report.Hook} {
			hook.Call(t.Context(), guard.CallEvent{Op: driver.OpRenew, Node: "a:1", Err: guardtest.Fail(driver.KindTimeout)})
			hook.Call(t.Context(), guard.CallEvent{Op: driver.OpRenew, Node: "a:1", Err: &guard.LostError{Reason: guard.LossNotHeld}})
			hook.Call(t.Context(), guard.CallEvent{Op: driver.OpRelease, Node: "a:1"})
			for _, grant := range []guard.GrantReason{"", guard.GrantMissedWakeUp} {
				for _, purpose := range []guard.Purpose{guard.PurposeRun, guard.PurposeAuxiliary} {
					e := guard.Event{Name: "report", Purpose: purpose}
					hook.AcquireEnd(t.Context(), guard.AcquireEvent{Event: e, Waits: true, Grant: grant})
				}
			}
		}
		s.close(t)

		var real []string
		for name, m := range s.metrics(t) {
			if !slices.Contains([]string{"onerun.node.operation.duration", "onerun.store.operation.duration", "onerun.acquire.unknown", "onerun.renew.duration", "onerun.lease.losses", "onerun.waiter.missed_wakeups"}, name) {
				continue
			}
			for _, line := range points(m) {
				if strings.Contains(line, "error.type") || strings.Contains(line, "loss.reason") || name == "onerun.waiter.missed_wakeups" {
					line = regexp.MustCompile(` ?onerun\.name=report ?`).ReplaceAllString(line, " ")
					line = strings.NewReplacer("{ ", "{", " }", "}", "×", "").Replace(line)
					at := strings.Index(line, "}")
					real = append(real, strings.ReplaceAll(line[:at], " ", ",")+line[at:])
				}
			}
		}
		slices.Sort(real)
		require.Equal(t, real, report.Lines())
		require.Greater(t, len(real), 8)
	})
}
