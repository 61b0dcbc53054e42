package system_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	if task := os.Getenv(contenderEnv); task != "" {
		contend(task)
		return
	}
	if task := os.Getenv(queuerEnv); task != "" {
		queue(task)
		return
	}
	if addr := os.Getenv(candidateEnv); addr != "" {
		campaign(addr)
		return
	}
	redistest.AtOnce(4) // they wait for each other
	os.Exit(m.Run())
}

// says returns what the process says after the word, with which its next line begins.
func says(t *testing.T, c *processtest.Child, word string) string {
	t.Helper()
	line := c.Next()
	rest, ok := strings.CutPrefix(line, word)
	require.True(t, ok, "the process said %q, not %q", line, word)
	return strings.TrimSpace(rest)
}
