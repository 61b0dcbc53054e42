package guardhttp_test

import (
	"net/http"
	"os"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// The test binary is its own worker process when this is set to the address of a Redis server.
const lifeWorkerEnv = "ONERUN_TEST_HTTP_WORKER"

// keepAll is a policy that keeps failures of the server, too.
func keepAll(int, http.Header) bool { return true }

func TestMain(m *testing.M) {
	if addr := os.Getenv(lifeWorkerEnv); addr != "" {
		lifeWork(addr)
		return
	}
	redistest.AtOnce(5) // these tests wait for leases and servers most of the time
	redistest.VerifyNoLeaks(m)
}
