package guardhttp_test

import (
	"flag"
	"net/http"
	"os"
	"runtime"
	"strconv"
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
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	// these tests wait for leases and servers most of the time, and not for a processor
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(4, runtime.GOMAXPROCS(0))))
	}
	redistest.VerifyNoLeaks(m)
}
