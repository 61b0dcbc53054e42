package guardasynq_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is its own worker process when this names what to be.
const workerEnv = "ONERUN_TEST_WORKER"

func TestMain(m *testing.M) {
	switch os.Getenv(workerEnv) {
	case "":
	case "tasks":
		taskProcess()
		return
	}
	logging.Disable() // go-redis prints each dial that a server refuses which a test has killed
	redistest.AtOnce(6)
	redistest.VerifyNoLeaks(m)
}
