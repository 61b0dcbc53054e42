package redistest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestStalls_tellForHowLongThisProcessStoodStill(t *testing.T) {
	stalls := redistest.WatchStalls()
	defer stalls.Stop()
	before := time.Now()
	time.Sleep(50 * time.Millisecond) // in which it runs
	idle := stalls.Since(before)
	require.Less(t, idle, time.Since(before), "not all of it was a stall")

	start := time.Now()
	// A stop of 300 ms, by another process, as this one could not wake itself.
	require.NoError(t, exec.Command("sh", "-c", fmt.Sprintf("kill -STOP %[1]d; sleep 0.3; kill -CONT %[1]d", os.Getpid())).Run())
	took := time.Since(start)
	require.GreaterOrEqual(t, took, 300*time.Millisecond)
	require.GreaterOrEqual(t, stalls.Since(start), 280*time.Millisecond)
	require.GreaterOrEqual(t, stalls.Since(before), 280*time.Millisecond)
	require.Eventually(t, func() bool { return stalls.Since(time.Now()) < 280*time.Millisecond }, soon, step, "it is over")
}
