package guardscheduler_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is its own scheduler process when this is set.
const workerEnv = "ONERUN_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) == "scheduler" {
		schedulerProcess()
		return
	}
	logging.Disable() // go-redis prints each dial that a server refuses which a test has killed
	redistest.AtOnce(8)
	redistest.VerifyNoLeaks(m)
}
