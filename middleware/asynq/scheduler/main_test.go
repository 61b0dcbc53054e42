package guardscheduler_test

import (
	"flag"
	"os"
	"runtime"
	"strconv"
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
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	// these tests wait for ticks and for leases most of the time, and not for a processor
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(8, runtime.GOMAXPROCS(0))))
	}
	redistest.VerifyNoLeaks(m)
}
