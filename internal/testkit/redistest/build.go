package redistest

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// programEnv names the server program to start, if it is not the redis-server of PATH. It has to
// take the arguments of redis-server.
const programEnv = "ONERUN_REDIS_SERVER"

func program() string { return cmp.Or(os.Getenv(programEnv), "redis-server") }

// Use has all servers that the test and its subtests start run another program. The test must not
// be parallel, but its subtests may be.
func Use(t testing.TB, program string) {
	t.Helper()
	t.Setenv(programEnv, program)
}

// A Build is what a server program says of itself with --version.
type Build struct {
	Name    string // "Redis", "Valkey"
	Version string // "7.0.15"
}

func (b Build) String() string { return b.Name + " " + b.Version }

// ProgramBuild returns the Build of the program that servers run. It calls Require.
func ProgramBuild(t testing.TB) Build {
	t.Helper()
	Require(t)
	b, err := buildOf(program())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// versionLine is the begin of "Redis server v=7.0.15 sha=00000000:0 malloc=…".
var versionLine = regexp.MustCompile(`^(\S+) server v=(\d+\.\S+)`)

var builds sync.Map // Build by program

func buildOf(program string) (Build, error) {
	if known, ok := builds.Load(program); ok {
		return known.(Build), nil
	}
	out, err := exec.Command(program, "--version").CombinedOutput()
	if err != nil {
		return Build{}, fmt.Errorf("redistest: ask %s for its version: %w: %s", program, err, out)
	}
	found := versionLine.FindSubmatch(out)
	if found == nil {
		return Build{}, fmt.Errorf("redistest: %s does not tell its version, but %q", program, out)
	}
	b := Build{Name: string(found[1]), Version: string(found[2])}
	builds.Store(program, b)
	return b, nil
}

// knownBuild returns the Build of the program, or none if it does not tell, which fails later.
func knownBuild() Build {
	b, _ := buildOf(program())
	return b
}

// atLeast7 reports whether the server knows what came with Redis 7.0: options for the port of the
// Cluster's bus and for DEBUG, CLUSTER LINKS, ranges of slots.
func (b Build) atLeast7() bool {
	major, _, _ := strings.Cut(b.Version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 7
}
