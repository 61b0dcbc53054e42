package billing_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	billing "github.com/seed-1795987d/onerun/examples/testing"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
)

// newGuard returns a Guard over the store. It is closed when the test ends.
func newGuard(t *testing.T, store guard.Locker) *guard.Guard {
	t.Helper()
	g, err := guard.New(store, guard.WithTTL(30*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	return g
}

// A letterbox counts what it is sent.
type letterbox struct{ invoices []string }

func (l *letterbox) mail(_ context.Context, invoice string) (receipt string, err error) {
	l.invoices = append(l.invoices, invoice)
	return "receipt for " + invoice, nil
}

// The backend in memory is a store that works. In a bubble of testing/synctest, a month takes no
// time.
func TestSend_sendsAnInvoiceOnceInThirtyDays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var box letterbox
		s := billing.New(newGuard(t, memory.New()), box.mail)
		for range 2 {
			receipt, err := s.Send(t.Context(), "42")
			require.NoError(t, err)
			require.Equal(t, "receipt for 42", receipt)
		}
		require.Equal(t, []string{"42"}, box.invoices)

		time.Sleep(31 * 24 * time.Hour) // virtual time
		_, err := s.Send(t.Context(), "42")
		require.NoError(t, err)
		require.Equal(t, []string{"42", "42"}, box.invoices)
	})
}

// A scripted backend answers the first claim, and so on, as the test says.
func TestSend_doesNotSendIfTheStoreDoesNotGrantTheKey(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		answer func(ctx context.Context) (driver.Answer, error)
		want   error
	}{
		"busy": {func(context.Context) (driver.Answer, error) {
			return guardtest.Busy(20*time.Second, "web-2")
		}, billing.ErrRunning},
		"connection refused": {func(context.Context) (driver.Answer, error) {
			return driver.Answer{}, guardtest.Fail(driver.KindConnection)
		}, billing.ErrUnavailable},
		"no answer": {func(ctx context.Context) (driver.Answer, error) {
			return driver.Answer{}, guardtest.Hang(ctx)
		}, billing.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var box letterbox
				s := billing.New(newGuard(t, &guardtest.Scripted{
					OnAcquire: func(ctx context.Context, _ int, _ driver.Claim) (driver.Answer, error) { return row.answer(ctx) },
				}), box.mail)
				_, err := s.Send(t.Context(), "42")
				require.ErrorIs(t, err, row.want)
				require.Empty(t, box.invoices)
			})
		})
	}
}

func TestSend_returnsTheReceiptOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	var box letterbox
	s := billing.New(newGuard(t, &guardtest.Scripted{
		OnAcquire: func(context.Context, int, driver.Claim) (driver.Answer, error) {
			return guardtest.Done([]byte("receipt of March"))
		},
	}), box.mail)
	receipt, err := s.Send(t.Context(), "42")
	require.NoError(t, err)
	require.Equal(t, "receipt of March", receipt)
	require.Empty(t, box.invoices)
}

// The store says at the first renewal that the lease is gone, as after a failover. The mailer's
// context ends, so it stops, and the caller learns that the outcome is unclear.
func TestSend_stopsIfTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := billing.New(newGuard(t, &guardtest.Scripted{
			OnRenew: func(context.Context, int, driver.Claim) (held bool, err error) { return false, nil },
		}), func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", context.Cause(ctx)
		})
		begun := time.Now()
		_, err := s.Send(t.Context(), "42")
		require.ErrorIs(t, err, billing.ErrUnclear)
		require.ErrorIs(t, err, guard.ErrLost)
		require.Less(t, time.Since(begun), 30*time.Second, "before the lease would have ended")
	})
}

// The invoice was sent, but the store did not confirm the marker. So the next call could send it
// again.
func TestSend_saysThatTheMarkerMayBeMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var box letterbox
		s := billing.New(newGuard(t, &guardtest.Scripted{
			OnRelease: func(_ context.Context, n int, _ driver.Claim, _ driver.After) (held bool, err error) {
				if n <= 3 { // as often as the call tries
					return false, guardtest.Fail(driver.KindConnection)
				}
				return false, guardtest.ErrUnscripted // so the lease is released
			},
		}), box.mail)
		_, err := s.Send(t.Context(), "42")
		require.ErrorIs(t, err, billing.ErrUnclear)
		require.ErrorIs(t, err, guard.ErrMarker)
		require.Equal(t, []string{"42"}, box.invoices)
	})
}

// A run that fails leaves no marker, so that the next call sends the invoice. Calls returns what
// the Guard asked of the store.
func TestSend_leavesNoMarkerIfTheMailerFails(t *testing.T) {
	t.Parallel()
	store := &guardtest.Scripted{}
	errMail := errors.New("no such address")
	s := billing.New(newGuard(t, store), func(context.Context, string) (string, error) { return "", errMail })
	_, err := s.Send(t.Context(), "42")
	require.ErrorIs(t, err, errMail)
	calls := store.Calls()
	require.Len(t, calls, 2)
	require.Equal(t, "invoice:42", calls[0].Claim.Key)
	require.Equal(t, driver.OpRelease, calls[1].Op)
	require.False(t, calls[1].After.Done)
}
