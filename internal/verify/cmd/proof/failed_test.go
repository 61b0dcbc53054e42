package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const failedOutput = `ok  	example.com/a	0.1s
--- FAIL: TestOuter (0.03s)
    --- FAIL: TestOuter/inner (0.02s)
        a_test.go:7: 
            	Error:      	Not equal
23:M 28 Nov 2026 15:00:00.000 * Ready to accept connections
        a_test.go:9: its last words
redis: 2026/11/28 pool.go:1: connection refused
FAIL
FAIL	example.com/b	1.2s
ok  	example.com/c	0.1s
panic: test timed out after 15m0s
	running tests:
		TestSlow (14m)

goroutine 1 [running]:
FAIL	example.com/d	900.1s
# example.com/e
e/e.go:3:1: undefined: x
FAIL	example.com/e [build failed]
FAIL
`

func TestFailures_namesAndReasons(t *testing.T) {
	var out bytes.Buffer
	showFailures(&out, strings.NewReader(failedOutput))
	require.Equal(t, `== why tests failed:
| --- FAIL: TestOuter (0.03s)
|     --- FAIL: TestOuter/inner (0.02s)
|         a_test.go:7: 
|             	Error:      	Not equal
|         a_test.go:9: its last words
| panic: test timed out after 15m0s
| 	running tests:
| 		TestSlow (14m)
| goroutine 1 [running]:
| # example.com/e
| e/e.go:3:1: undefined: x
== what failed:
| example.com/b TestOuter
| example.com/b TestOuter/inner
| example.com/d	900.1s
| example.com/e [build failed]
`, out.String())
	again := out.String()
	out.Reset()
	showFailures(&out, strings.NewReader(failedOutput+again))
	require.Equal(t, again, out.String(), "a list of failures is no failure")
	_, names := failures(strings.NewReader("--- FAIL: BenchmarkA\nFAIL\n"))
	require.Equal(t, []string{"BenchmarkA"}, names, "of a binary that ran without go test")
	out.Reset()
	showFailures(&out, strings.NewReader("ok  	example.com/a	0.1s\n"))
	require.Empty(t, out.String())
}
