package servers_test

import (
	"os"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' lines about connections that end
	redistest.VerifyNoLeaks(m)
}

const (
	// serversEnv is a list of name=program, separated by commas or newlines.
	serversEnv = "ONERUN_REDIS_SERVERS"
	// allEnv, if it is set to "all", asks for the full form.
	allEnv = "ONERUN_SERVERS"
	// reportEnv has docs/servers.md brought up to date, if it is set to anything.
	reportEnv = "ONERUN_SERVERS_REPORT"
)

// full reports whether this is the full form.
func full() bool { return os.Getenv(allEnv) == "all" }
