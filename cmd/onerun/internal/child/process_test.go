//go:build unix

package child_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/child"
)

// stuck in the environment makes a keeper one that never reads its orders.
const stuck = "KEEPER_IS_STUCK=1"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == child.KeeperArg {
		if os.Getenv("KEEPER_IS_STUCK") != "" {
			child.CatchSignals(make(chan os.Signal, 1))
			time.Sleep(time.Hour) // it is killed before
		}
		if err := child.Keep(); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// The order to start waited 100 ms for room in the pipe. Then it was cut, and both sides waited for
// the rest, for good.
func TestStart_isBoundedByTheLease(t *testing.T) {
	for name, size := range map[string]int{"a short order": 0, "one longer than a pipe": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			c := child.Command{Path: "/bin/true", Args: []string{"true", strings.Repeat("x", size)}, Env: []string{stuck}}
			_, err := child.Start(t.Context(), c, 300*time.Millisecond)
			require.ErrorContains(t, err, "before the lease would have ended")
			requireNoChildren(t)
		})
	}
}

func TestStart_endsWithItsContext(t *testing.T) {
	over := errors.New("over")
	for name, size := range map[string]int{"a short order": 0, "one longer than a pipe": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(50*time.Millisecond, func() { cancel(over) })
			c := child.Command{Path: "/bin/true", Args: []string{"true", strings.Repeat("x", size)}, Env: []string{stuck}}
			_, err := child.Start(ctx, c, time.Hour)
			require.ErrorIs(t, err, over)
			requireNoChildren(t)
		})
	}
}

// requireNoChildren asserts that this process has waited for all that it has started.
func requireNoChildren(t *testing.T) {
	t.Helper()
	_, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
	require.ErrorIs(t, err, syscall.ECHILD)
}

// The host was suspended between the order and the start, for longer than the lease lasts.
func TestKeep_startsNothingAfterTheEndOfTheLease(t *testing.T) {
	touch, err := exec.LookPath("touch")
	require.NoError(t, err)
	for until, starts := range map[int64]bool{1: false, 1 << 62: true} {
		began := filepath.Join(t.TempDir(), "began")
		order, err := json.Marshal(map[string]any{
			"Until": until,
			"Start": map[string]any{"Path": []byte(touch), "Args": [][]byte{[]byte("touch"), []byte(began)}},
		})
		require.NoError(t, err)
		orders, ours, err := os.Pipe()
		require.NoError(t, err)
		reports, theirs, err := os.Pipe()
		require.NoError(t, err)
		self, err := os.Executable()
		require.NoError(t, err)
		keeper := exec.CommandContext(t.Context(), self, child.KeeperArg)
		keeper.ExtraFiles = []*os.File{orders, theirs}
		_, err = ours.Write(order)
		require.NoError(t, err)
		require.NoError(t, keeper.Run())
		if starts {
			require.FileExists(t, began)
		} else {
			require.NoFileExists(t, began)
		}
		for _, end := range []*os.File{orders, ours, reports, theirs} {
			require.NoError(t, end.Close())
		}
	}
}
