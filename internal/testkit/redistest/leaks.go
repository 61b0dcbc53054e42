package redistest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end that wait for a server which is frozen or away:
// go-redis does not end a dial or a read before its own time-outs, which are five seconds.
const patience = 15 * time.Second

// VerifyNoLeaks runs a package's tests and fails if goroutines are left. It is
// goleak.VerifyTestMain for tests in which servers freeze or go away.
func VerifyNoLeaks(m *testing.M) {
	code := m.Run()
	leaked := goleak.Find()
	for start := time.Now(); leaked != nil && code == 0 && time.Since(start) < patience; {
		leaked = goleak.Find()
	}
	if leaked != nil && code == 0 {
		fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", leaked)
		code = 1
	}
	os.Exit(code)
}
