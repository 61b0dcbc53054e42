package processtest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// The test binary is a child when this says what it is to do.
const childEnv = "ONERUN_TEST_PROCESSTEST"

func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "echo":
		echo()
	case "parent":
		parent()
	}
}

// echo says each line that it reads, to standard error if it begins with "wrong", and ends badly
// with "end".
func echo() {
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch line := lines.Text(); {
		case line == "end":
			os.Exit(3)
		case strings.HasPrefix(line, "wrong"):
			fmt.Fprintln(os.Stderr, line)
		default:
			fmt.Println(line)
		}
	}
}

// parent starts a process with its own output, and freezes it.
func parent() {
	cmd := exec.Command("sleep", "100")
	cmd.Stdout = os.Stdout
	p, err := processtest.Start(cmd)
	if err == nil {
		err = p.Freeze()
	}
	if err != nil {
		panic(err)
	}
	fmt.Println("has frozen", p.PID())
	_ = p.Wait()
}
