package onerun_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// snippetImports are the packages that a Go block may use without naming them, as goimports would
// find them.
var snippetImports = []string{
	"context", "database/sql", "errors", "io", "log/slog", "net/http", "testing", "time",
	"github.com/hibiken/asynq", "github.com/redis/go-redis/v9", "github.com/robfig/cron/v3",
	"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/propagation",
	module + "/backend/memory", module + "/backend/reentrant", module + "/backend/redlock", module + "/backend/single",
	module + "/guard", module + "/guard/guardtest", module + "/tracing",
}

// snippetAliases are those that every example imports under another name.
var snippetAliases = map[string]string{
	"guardhttp": module + "/middleware/http", "guardasynq": module + "/middleware/asynq", "guardcron": module + "/middleware/cron",
	"guardscheduler": module + "/middleware/asynq/scheduler",
}

// snippetPrelude declares what is the reader's own.
const snippetPrelude = `
type accountKey struct{}

var (
	addrs   []string
	ctx     context.Context
	db      *sql.DB
	g       *guard.Guard
	key     string
	mux     *http.ServeMux
	rdb     *redis.Client
	request *http.Request

	byCustomer asynq.MiddlewareFunc

	client    *asynq.Client
	config    asynq.Config
	inspector *asynq.Inspector
	monitor   string
	redisOpt  asynq.RedisConnOpt
	mystore  struct{ New func(*redis.Client) guard.Locker }
)

func buildReport(context.Context) error              { return nil }
func charge(context.Context, *asynq.Task) error      { return nil }
func claim(http.ResponseWriter, *http.Request)       {}
func f(context.Context) error                        { return nil }
func hmacOf(string) string                           { return "" }
func importTenant(context.Context) error             { return nil }
func startServer(testing.TB) *redis.Client           { return nil }
func ping(url string)                                {}
`

// snippetFrameworks are in the module middleware/http/frameworks.
var snippetFrameworks = []string{
	"net/http", "time", "github.com/gin-gonic/gin", "github.com/go-chi/chi/v5", "github.com/gorilla/mux", "github.com/klauspost/compress/gzhttp",
	"github.com/labstack/echo/v4", "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp", module + "/middleware/http/frameworks",
}

var (
	goBlock   = regexp.MustCompile("(?ms)^```go\n(.*?)^```")
	otelRedis = "github.com/redis/go-redis/extra/redisotel/v9" // in the module bench
)

// The Go blocks of the documentation compile. They are parts of a function, so what they declare
// need not be used.
func TestDocs_goBlocksCompile(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"README.md", "docs/*.md"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	paths := append([]string{}, snippetImports...)
	for _, path := range snippetAliases {
		paths = append(paths, path)
	}
	compile := snippetCompiler(t, ".", paths...)
	compileBench := snippetCompiler(t, "bench", module+"/backend/single", "github.com/redis/go-redis/v9", otelRedis)
	compileFrameworks := snippetCompiler(t, "middleware/http/frameworks", snippetFrameworks...)

	blocks := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, at := range goBlock.FindAllSubmatchIndex(text, -1) {
			blocks++
			line := strings.Count(string(text[:at[2]]), "\n") + 1
			where := fmt.Sprintf("%s:%d", page, line)
			block := string(text[at[2]:at[3]])
			switch {
			case strings.Contains(block, "frameworks."):
				compileFrameworks(t, where, snippetFile(block, "var idempotent func(http.Handler) http.Handler\nvar handler http.Handler\n", nil, snippetFrameworks...))
			case strings.Contains(block, "redisotel."):
				compileBench(t, where, snippetFile(block, "var rdb *redis.Client\n", nil,
					module+"/backend/single", "github.com/redis/go-redis/v9", otelRedis))
			default:
				compile(t, where, snippetFile(block, snippetPrelude, snippetAliases, snippetImports...))
			}
		}
	}
	require.Greater(t, blocks, 15, "they were found")
}

// A test that cannot fail shows nothing.
func TestDocs_blocksThatDoNotCompileAreFound(t *testing.T) {
	t.Parallel()
	check := snippetChecker(t, ".", "context", module+"/guard")
	for _, block := range []string{
		"import \"context\"\n\nx := 1\n",
		"g.Do(ctx)\n",
		"unknown()\n",
		"var x int = \"text\"\n",
	} {
		require.Error(t, check(snippetFile(block, "var ctx context.Context\nvar g *guard.Guard\n", nil, "context", module+"/guard")), block)
	}
	require.NoError(t, check(snippetFile("err := g.Close(ctx)\n", "var ctx context.Context\nvar g *guard.Guard\n", nil, "context", module+"/guard")))
}

// snippetFile makes a file out of a block: declarations as they are, and statements in a function.
func snippetFile(block, prelude string, aliases map[string]string, imports ...string) string {
	var file strings.Builder
	file.WriteString("package snippet\n\n")
	for _, path := range imports {
		fmt.Fprintf(&file, "import %q\n", path)
	}
	for alias, path := range aliases {
		fmt.Fprintf(&file, "import %s %q\n", alias, path)
	}
	file.WriteString(prelude)
	if strings.HasPrefix(block, "func ") || strings.HasPrefix(block, "type ") {
		file.WriteString(block)
	} else {
		file.WriteString("func _() error {\n" + block + "\nreturn nil\n}\n")
	}
	return file.String()
}

func snippetCompiler(t *testing.T, dir string, paths ...string) func(t *testing.T, where, file string) {
	t.Helper()
	check := snippetChecker(t, dir, paths...)
	return func(t *testing.T, where, file string) {
		t.Helper()
		require.NoError(t, check(file), "%s does not compile", where)
	}
}

// snippetChecker returns a function that checks the types of a file, which may import these
// packages as the module in a folder sees them.
func snippetChecker(t *testing.T, dir string, paths ...string) func(file string) error {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-export", "-f", "{{.ImportPath}}={{.Export}}"}, paths...)...)
	list.Dir = dir
	out, err := list.Output()
	require.NoError(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		exports[path] = file
	}
	files := token.NewFileSet()
	imported := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return func(file string) error {
		parsed, err := parser.ParseFile(files, "block.go", file, 0)
		if err != nil {
			return err
		}
		var first error
		config := types.Config{Importer: imported, Error: func(err error) {
			//nolint:errorlint // go/types says that this is its type
			if problem, ok := err.(types.Error); (!ok || !problem.Soft) && first == nil {
				first = err
			}
		}}
		_, _ = config.Check("snippet", files, []*ast.File{parsed}, nil)
		return first
	}
}
