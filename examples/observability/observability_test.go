package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// One run of the job is in the metrics, in the spans and in the log.
func TestObservability_reportsTheRunInThreeWays(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	program := programtest.Start(t, "-redis", redistest.Start(t).Addr(), "-metrics", free.Addr().String())
	var metrics string
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + free.Addr().String() + "/metrics")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		metrics = string(text)
		return err == nil
	}, time.Minute, 20*time.Millisecond)
	require.Regexp(t, `(?m)^onerun_run_duration_seconds_count\{.*onerun_name="nightly-report".*\} 1$`, metrics)
	require.NoError(t, program.Signal(syscall.SIGTERM))
	program.Ends()
	said := program.Said()
	for _, name := range []string{"acquire", "run", "release"} {
		require.Contains(t, said, `"Name":"`+name+` nightly-report"`, "a span")
	}
	for _, message := range []string{"lease acquired", "run ended", "lease released"} {
		require.Contains(t, said, `"msg":"`+message+`"`, "a log record")
	}
}

// A reader who copies the program from the page gets this one.
func TestObservability_isTheProgramOfThePage(t *testing.T) {
	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(program), "\npackage main\n")
	require.Contains(t, string(page), "```go\npackage main\n"+code+"```\n")
}
