package redistest_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

const (
	soon = 30 * time.Second
	step = 5 * time.Millisecond
)

var ctx = context.Background()

// Clusters and Sentinels need seconds to agree that a server is gone.
func TestMain(m *testing.M) {
	redistest.AtOnce(4)
	goleak.VerifyTestMain(m)
}

// lives tells whether a process exists and has not ended: a zombie does not live.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func requireGone(t *testing.T, pid int) {
	t.Helper()
	require.NotZero(t, pid)
	require.Eventually(t, func() bool { return !lives(pid) }, soon, step, "process %d lives on", pid)
}
