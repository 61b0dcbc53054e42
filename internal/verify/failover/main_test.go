package failover_test

import (
	"os"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(memberEnv) != "" {
		serve()
		return
	}
	redistest.AtOnce(32) // they wait
	redistest.VerifyNoLeaks(m)
}
