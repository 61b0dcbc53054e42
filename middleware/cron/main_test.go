package guardcron_test

import (
	"os"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is its own worker process when this is set.
const workerEnv = "ONERUN_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		cronProcess()
		return
	}
	redistest.AtOnce(5)
	redistest.VerifyNoLeaks(m)
}
