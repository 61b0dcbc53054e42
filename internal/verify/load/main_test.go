package load_test

import (
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis' words about connections that end
	redistest.VerifyNoLeaks(m)
}

// fullEnv asks for the full form.
const fullEnv = "ONERUN_LOAD"

// full reports whether this is the full form.
func full() bool { return os.Getenv(fullEnv) != "" }

// soon is for what happens in a second or so, on a machine that is busy with something else.
const soon = 60 * time.Second
