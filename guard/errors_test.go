package guard_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func TestErrors_sayWhatHappened(t *testing.T) {
	mine := errors.New("mine")
	for want, err := range map[string]error{
		`guard: "k" is busy, held by "web-1", for up to 1.5s`: &guard.BusyError{Key: "k", Left: 1500 * time.Millisecond, Label: "web-1"},
		`guard: "k" is busy (waited 2s)`:                      &guard.BusyError{Key: "k", Left: -1, Waited: 2 * time.Second},
		`guard: "k" is done`:                                  &guard.DoneError{Key: "k"},
		`guard: lease on "k" was lost: expired (last renewal: unreachable); the function returned: mine`: &guard.LostError{
			Key: "k", Reason: guard.LossExpired, Renew: errors.New("unreachable"), Err: mine,
		},
		`guard: "k": guard is closed`: &guard.ClosedError{Key: "k"},
		`single: renew "k" at 127.0.0.1:6379: oom: mine`: &guard.StoreError{
			Backend: "single", Op: driver.OpRenew, Key: "k", Addr: "127.0.0.1:6379", Kind: driver.KindOOM, Err: mine,
		},
		`guard: WithTTL(1ns): must be at least 100ms`: &guard.SettingError{Setting: "WithTTL", Value: "1ns", Reason: "must be at least 100ms"},
	} {
		require.EqualError(t, err, want)
	}
}

func TestState_hasAName(t *testing.T) {
	require.Equal(t, "busy granted done unknown",
		driver.Busy.String()+" "+driver.Granted.String()+" "+driver.Done.String()+" "+driver.State(9).String())
}
