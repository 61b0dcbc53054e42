package arch_test

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rules say what the code of a folder, tests aside, may import beside the standard library: paths
// of this module begin with a slash, and a path stands for all below it. The first rule that fits
// a package counts.
var rules = []struct {
	folder string
	may    []string
}{
	{"/guard/guardtest", []string{"/guard", "github.com/stretchr/testify/require"}},
	{"/guard/driver", nil},
	{"/guard/internal", []string{"/guard/driver", "/guard/internal"}},
	{"/guard", []string{"/guard/driver", "/guard/internal", "/internal/lazyctx"}},
	{"/backend/internal/holders", []string{"/guard/driver"}},
	{"/backend/internal/sqlstore", []string{"/guard/driver", "/backend/internal/contain", "/backend/internal/holders"}},
	{"/backend/internal", []string{"/guard/driver", "/backend/internal", "github.com/redis/go-redis"}},
	{"/backend/single", []string{"/guard/driver", "/backend/internal", "github.com/redis/go-redis"}},
	{"/backend/reentrant", []string{"/guard/driver", "/backend/internal", "github.com/redis/go-redis"}},
	{"/backend/mysql", []string{"/guard/driver", "/backend/internal/holders", "/backend/internal/sqlstore"}},
	{"/backend/memory", []string{"/guard/driver", "/backend/internal/holders"}},
	{"/backend/sqlite", []string{"/guard/driver", "/backend/internal/holders", "/backend/internal/contain", "/backend/internal/sqlstore"}},
	{"/backend/postgres", []string{"/guard/driver", "/backend/internal/holders", "/backend/internal/contain", "/backend/internal/sqlstore"}},
	{"/backend/etcd", []string{"/guard/driver", "/backend/internal/holders", "go.etcd.io/etcd", "google.golang.org/grpc"}},
	{"/backend", []string{"/guard", "/backend/internal/contain", "/internal/lazyctx"}},
	{"/middleware/internal", []string{"/guard", "/middleware/idempotency", "/middleware/internal", "github.com/robfig/cron"}},
	{"/middleware/idempotency", []string{"/guard", "/middleware/internal/keys", "/middleware/internal/refused"}},
	{"/middleware/http", []string{"/guard", "/middleware/idempotency", "/middleware/internal", "github.com/felixge/httpsnoop"}},
	{"/middleware/grpc", []string{"/guard", "/middleware/idempotency", "/middleware/internal", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc"}},
	{"/middleware/jetstream", []string{"/guard", "/middleware/internal", "github.com/nats-io/nats.go"}},
	// asynq's Scheduler is robfig/cron, with its specs.
	{"/middleware/asynq", []string{"/guard", "/middleware/internal", "github.com/hibiken/asynq", "github.com/robfig/cron"}},
	{"/middleware/watermill", []string{"/guard", "/middleware/internal", "github.com/ThreeDotsLabs/watermill"}},
	{"/middleware/river", []string{"/guard", "/middleware/internal", "github.com/riverqueue/river/rivertype"}},
	{"/middleware/gocron", []string{"/guard"}},
	{"/middleware/cron", []string{"/guard", "/inspect", "/middleware/internal", "github.com/robfig/cron"}},
	{"/internal/verify/cmd/proof", []string{"golang.org/x/sync"}},
	{"/internal/verify/history", []string{"/guard", "github.com/anishathalye/porcupine"}},
	{"/internal/testkit/cronlog", []string{"/guard/driver", "/middleware/cron"}},
	{"/internal/testkit/daemon", []string{"/internal/testkit/processtest"}},
	{"/internal/testkit/certs", nil},
	{"/internal/testkit/etcdtest", []string{"/internal/testkit/certs", "/internal/testkit/clocktest", "/internal/testkit/daemon", "/internal/testkit/leftout"}},
	{"/internal/testkit/rabbittest", []string{"/internal/testkit/daemon", "/internal/testkit/leftout"}},
	{"/internal/testkit/lagtest", nil},
	{"/internal/testkit/mysqltest", []string{"/internal/testkit/daemon", "/internal/testkit/leftout"}},
	{"/internal/testkit/postgrestest", []string{"/internal/testkit/daemon", "/internal/testkit/leftout", "/internal/testkit/processtest"}},
	{"/internal/testkit/redissontest", []string{"github.com/redis/go-redis"}},
	{"/internal/testkit/linetest", []string{"/backend/memory", "/guard"}},
	{"/inspect/web", []string{"/guard", "/middleware/cron", "/inspect", "/internal/printable"}},
	{"/inspect", []string{"/guard", "/inspect", "/internal/printable"}},
	{"/tracing", []string{"/guard", "/internal/signals", "go.opentelemetry.io/otel"}},
	{"/logging", []string{"/guard", "/internal/signals"}},
	{"/internal/signals", []string{"/guard"}},
}

// never may be imported by code that is not a test, outside of the folder itself, of examples and
// of the demo.
var never = []string{
	"/guard/guardtest", "/internal/testkit", "/internal/verify", "/examples", "go.opentelemetry.io/otel/sdk", "github.com/alicebob/miniredis",
}

// testkit are packages of tests' code that import what tests do.
var testkit = []string{
	"/internal/testkit/adaptertest", "/internal/testkit/backends", "/internal/testkit/fleettest", "/internal/testkit/metricspage", "/internal/testkit/redistest", "/internal/testkit/redistest/faultmetrics", "/internal/testkit/sqltest",
}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Standard   bool
}

func TestImports_followTheDesign(t *testing.T) {
	standard := map[string]bool{}
	for _, p := range list(t, ".", "std") {
		standard[p.ImportPath] = true
	}
	packages := listAll(t)
	for _, p := range packages {
		at := strings.TrimPrefix(p.ImportPath, module)
		if within(at, "/examples") || within(at, "/internal/verify/demo") || slices.Contains(testkit, at) {
			continue
		}
		for _, path := range p.Imports {
			if standard[path] || path == "C" {
				continue
			}
			path = strings.TrimPrefix(path, module)
			for _, n := range never {
				require.False(t, within(path, n) && !within(at, n), "%s imports %s", at, path)
			}
			require.True(t, allowed(at, path), "%s must not import %s", at, path)
		}
	}
}

// allowed reports whether the package at may import path. A package without a rule may not.
func allowed(at, path string) bool {
	for _, r := range rules {
		if !within(at, r.folder) {
			continue
		}
		for _, may := range r.may {
			if within(path, may) {
				return true
			}
		}
		return false
	}
	return false
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

// What a user's program is built from when it traces with the API alone.
func TestImports_tracingDoesWithoutTheSDK(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./tracing").Output()
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	require.Contains(t, deps, "go.opentelemetry.io/otel/trace")
	for _, dep := range deps {
		require.False(t, within(dep, "go.opentelemetry.io/otel/sdk"), dep)
		require.False(t, within(dep, "go.opentelemetry.io/otel/exporters"), dep)
	}
}

func TestImports_rulesRefuse(t *testing.T) {
	require.True(t, allowed("/backend/single", "github.com/redis/go-redis/v9"))
	require.False(t, allowed("/backend/redlock", "github.com/redis/go-redis/v9"))
	require.False(t, allowed("/guard", "/backend/memory"))
	require.False(t, allowed("/middleware/http", "/middleware/asynq"))
	require.False(t, allowed("/middleware/http", "/backend/single"))
	require.False(t, allowed("/unheard-of", "/guard"))
}

// modules are the folders of the modules whose packages follow the rules.
var modules = []string{".", "examples", "internal/verify", "backend/etcd", "middleware/grpc", "middleware/jetstream", "middleware/river", "middleware/watermill"}

// listAll lists the packages of all modules.
func listAll(t *testing.T) (packages []listed) {
	t.Helper()
	for _, dir := range modules {
		all := list(t, dir, "./...")
		require.NotEmpty(t, all, dir)
		packages = append(packages, all...)
	}
	return packages
}

// list lists packages as the module in a folder sees them.
func list(t *testing.T, dir, pattern string) (packages []listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Standard", pattern)
	cmd.Dir = dir
	out, err := cmd.Output()
	require.NoError(t, err)
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p listed
		require.NoError(t, d.Decode(&p))
		packages = append(packages, p)
	}
	return packages
}
