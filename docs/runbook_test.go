package docs_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
)

const runbook = "deploy/runbook.md"

// An operator who types the commands of the runbook gets the answers that it shows. On the server
// are a lease, markers, a hold with an owner, a task of customer 42 and a request, under their
// keys of the runbook.
func TestRunbook_commandsRun(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	g := runbookGuard(t, single.New(rdb))
	lease, err := g.Acquire(t.Context(), "report:2026-11-21")
	require.NoError(t, err)
	nothing := func(context.Context) error { return nil }
	require.NoError(t, g.Do(t.Context(), "report:2026-11-20", nothing, guard.WithOnce(time.Hour)))
	owners := runbookGuard(t, reentrant.New(rdb))
	_, err = owners.Acquire(t.Context(), "import:17", guard.WithOwner("import of tenant 17"))
	require.NoError(t, err)
	require.NoError(t, owners.Do(t.Context(), "import:16", nothing, guard.WithOnce(time.Hour)))
	order(t, g)
	chargeCustomer42(t, g, server.Addr())

	began := time.Now()
	text := strings.ReplaceAll(readPage(t, runbook), "127.0.0.1:6379", server.Addr())
	blocks := docBlock.FindAllStringSubmatch(text, -1)
	var script strings.Builder
	script.WriteString("set -eu\nexec 2>&1\n")
	ran := 0
	for i, block := range blocks {
		if block[1] == "sh" {
			fmt.Fprintf(&script, "%s\necho '=== end of block %d'\n", block[2], i)
			ran++
		}
	}
	require.Greater(t, ran, 8, "they were found")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Env = append(os.Environ(), "PATH="+buildOnerun(t)+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	rest, times := string(out), 0
	for i, block := range blocks {
		if block[1] != "sh" {
			continue
		}
		got, after, found := strings.Cut(rest, fmt.Sprintf("=== end of block %d\n", i))
		require.True(t, found, "%s", rest)
		rest = after
		if i+1 < len(blocks) && blocks[i+1][1] == "text" {
			require.Regexp(t, outputPattern(blocks[i+1][2]), got, "%s", block[2])
		}
		if since := shownSince.FindStringSubmatch(got); since != nil {
			at, err := time.Parse("2006-01-02 15:04:05", since[1])
			require.NoError(t, err)
			require.WithinDuration(t, began, at, time.Minute, "since when the key is held")
			times++
		}
	}
	require.Equal(t, 3, times)

	// A command of the runbook has taken the key: no renewal succeeds, and the key stays busy.
	var lost *guard.LostError
	<-lease.Context().Done()
	require.ErrorAs(t, context.Cause(lease.Context()), &lost)
	require.Equal(t, guard.LossNotHeld, lost.Reason)
	require.ErrorIs(t, g.Do(t.Context(), "report:2026-11-21", nothing), guard.ErrBusy)
	// Others have forgotten the markers.
	require.NoError(t, g.Do(t.Context(), "report:2026-11-20", nothing))
	require.NoError(t, owners.Do(t.Context(), "import:16", nothing))
}

var shownSince = regexp.MustCompile(`(?m)^  since  (\S+ \S+) UTC`)

// buildOnerun returns a folder with the command onerun, which is built once.
func buildOnerun(t *testing.T) string {
	t.Helper()
	require.NoError(t, built())
	return programs
}

var built = sync.OnceValue(func() error {
	build := exec.CommandContext(context.Background(), "go", "build", "-o", programs, ".")
	build.Dir = "cmd/onerun"
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func runbookGuard(t *testing.T, locker guard.Locker) *guard.Guard {
	t.Helper()
	g, err := guard.New(locker, guard.WithoutNamespace(), guard.WithLabel("web-1 pid 4242"), guard.WithTTL(12*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel() // leases that the test still has are revoked
		_ = g.Close(ended)
	})
	return g
}

// order sends the request that the runbook looks for.
func order(t *testing.T, g *guard.Guard) {
	t.Helper()
	tenant := func(*http.Request) (string, error) { return "tenant-7", nil }
	idempotent, err := guardhttp.New(g, guardhttp.IdempotencyKey, guardhttp.WithScope(tenant))
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /orders", idempotent(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	})))
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/orders", nil)
	r.Header.Set("Idempotency-Key", "k1")
	mux.ServeHTTP(w, r)
	require.Equal(t, http.StatusCreated, w.Code)
}

// chargeCustomer42 starts a task that runs until the test ends.
func chargeCustomer42(t *testing.T, g *guard.Guard, addr string) {
	t.Helper()
	at := asynq.RedisClientOpt{Addr: addr}
	client, inspector := asynq.NewClient(at), asynq.NewInspector(at)
	t.Cleanup(func() { assert.NoError(t, client.Close()); assert.NoError(t, inspector.Close()) })
	byCustomer, err := guardasynq.New(g, guardasynq.FromJSON("customer"), guardasynq.WithClient(client, inspector))
	require.NoError(t, err)
	running, end := make(chan struct{}), make(chan struct{})
	tasks := asynq.NewServeMux()
	tasks.Handle("charge", byCustomer(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		close(running)
		<-end
		return nil
	})))
	config := asynq.Config{Concurrency: 1, LogLevel: asynq.FatalLevel}
	server := asynq.NewServer(at, guardasynq.Configure(config))
	require.NoError(t, server.Start(tasks))
	t.Cleanup(func() { close(end); server.Shutdown() })
	_, err = client.Enqueue(asynq.NewTask("charge", []byte(`{"customer":"42"}`)))
	require.NoError(t, err)
	<-running
}

var (
	redisCommand = regexp.MustCompile("`([A-Z]{2,}(?: [A-Z]{2,})*(?: [a-z0-9-]+)*)`")
	ownCommand   = regexp.MustCompile("`onerun ([a-z]+)[^`]*`")
)

// The commands in the text of the runbook exist: those of Redis on a server, and those of onerun.
func TestRunbook_commandsInTheTextExist(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client(t)
	text := fencedCode.ReplaceAllString(readPage(t, runbook), "")
	ran := 0
	for _, found := range redisCommand.FindAllStringSubmatch(text, -1) {
		switch found[1] {
		case "PTTL", "DEL", "MISCONF", "BADFENCE", "NAME", "JOB", "SIGKILL", "FLUSHALL":
			continue // commands with a key, and words that are none
		}
		var args []any
		for _, arg := range strings.Fields(found[1]) {
			args = append(args, arg)
		}
		ran++
		if err := rdb.Do(t.Context(), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			require.NotRegexp(t, "unknown|wrong number|syntax", err.Error(), found[1])
		}
	}
	require.Greater(t, ran, 6, "commands of Redis were found")
	dir, own := buildOnerun(t), 0
	for _, found := range ownCommand.FindAllStringSubmatch(text, -1) {
		own++
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "onerun"), found[1], "--help").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Greater(t, own, 5, "commands of onerun were found")
	_, err := os.Stat("docs/acl.md") // to which it links
	require.NoError(t, err)
}
