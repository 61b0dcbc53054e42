package guardgrpc_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(workerEnv); addr != "" {
		fmt.Println(work(addr))
		os.Exit(1)
	}
	redistest.AtOnce(8) // most of the time, the tests wait
	redistest.VerifyNoLeaks(m)
}
