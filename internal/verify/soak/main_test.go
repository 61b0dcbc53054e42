package soak_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is a worker, or the resource, when one of these says as what.
const (
	workerEnv   = "ONERUN_TEST_SOAK_WORKER"
	resourceEnv = "ONERUN_TEST_SOAK_RESOURCE"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' words about connections that fail
	switch {
	case os.Getenv(workerEnv) != "":
		work(os.Getenv(workerEnv))
	case os.Getenv(resourceEnv) != "":
		keepResource(os.Getenv(resourceEnv))
	default:
		redistest.VerifyNoLeaks(m)
	}
}

const (
	// ttl is that of all leases.
	ttl = time.Second
	// soon is for what happens in a second or so, on a machine that is busy with something else.
	soon = 60 * time.Second
	// workers is how many processes work at a time.
	workers = 6
)

// plainKeys are those that every worker wants again and again.
var plainKeys = []string{"plain 0", "plain 1", "plain 2"}
