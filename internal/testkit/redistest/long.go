package redistest

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// AtOnce lets a package run n of its parallel tests at the same time, or as many as there are
// processors, unless the command line has -parallel. Call it in TestMain, if the tests wait for
// servers and leases most of the time and not for a processor.
func AtOnce(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) {
		// the fuzzer takes -parallel for the number of its own processes
		given = given || f.Name == "test.parallel" || f.Name == "test.fuzz"
	})
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(max(n, runtime.GOMAXPROCS(0))))
	}
}

// Long starts a parallel test that proves more than a contributor waits for: many processes, long
// outages, many rounds. Its name begins with TestLong_ or TestWeekly_. "make check" runs the first,
// the weekly run both, "make test" neither, and Long skips them with -short.
func Long(t *testing.T) {
	t.Helper()
	leftout.IfShort(t)
	t.Parallel()
}
