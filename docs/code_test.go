package docs_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// snippetImports are the packages that a Go block may use without naming them, as goimports would
// find them.
var snippetImports = []string{
	"context", "database/sql", "errors", "fmt", "io", "log", "log/slog", "net/http", "os", "testing", "time",
	"github.com/hibiken/asynq", "github.com/prometheus/client_golang/prometheus/promhttp",
	"github.com/redis/go-redis/v9", "github.com/robfig/cron/v3", "github.com/stretchr/testify/require",
	"go.opentelemetry.io/otel", "github.com/prometheus/client_golang/prometheus",
	"go.opentelemetry.io/otel/propagation", "go.opentelemetry.io/otel/sdk/metric",
	module + "/backend/both", module + "/backend/memory", module + "/backend/mysql", module + "/backend/postgres", module + "/backend/reentrant", module + "/backend/redlock", module + "/backend/single",
	module + "/guard", module + "/guard/driver", module + "/guard/guardtest", module + "/inspect", module + "/inspect/web", module + "/logging", module + "/middleware/idempotency", module + "/tracing",
}

// snippetAliases are the packages that every example imports under another name.
var snippetAliases = map[string]string{
	"otelprometheus": "go.opentelemetry.io/otel/exporters/prometheus",
	"guardhttp":      module + "/middleware/http", "guardasynq": module + "/middleware/asynq",
	"guardcron": module + "/middleware/cron", "guardgocron": module + "/middleware/gocron",
	"guardscheduler": module + "/middleware/asynq/scheduler",
}

// snippetPrelude declares what is the reader's own.
const snippetPrelude = `
type accountKey struct{}

var (
	addrs   []string
	c       *cron.Cron
	ctx     context.Context
	db      *sql.DB
	g       *guard.Guard
	jobs    *guardcron.Jobs
	key     string
	meters  *metric.MeterProvider
	mux     *http.ServeMux
	rdb     *redis.Client
	request *http.Request

	byCustomer asynq.MiddlewareFunc

	client    *asynq.Client
	config    asynq.Config
	inspector *asynq.Inspector
	locker    *postgres.Locker
	monitor   string
	redisOpt  asynq.RedisConnOpt
	tenant    guardhttp.KeyFunc
	mystore   struct{ New func(*redis.Client) guard.Locker }
)

func buildReport(context.Context) error              { return nil }
func charge(context.Context, *asynq.Task) error      { return nil }
func claim(http.ResponseWriter, *http.Request)       {}
func f(context.Context) error                        { return nil }
func hmacOf(string) string                           { return "" }
func importTenant(context.Context) error             { return nil }
func ping(url string)                                {}
func startServer(testing.TB) *redis.Client           { return nil }
`

// A snippetModule compiles the blocks that use packages which are no dependencies of Onerun.
type snippetModule struct {
	dir     string // of the module that has them
	uses    string // a regular expression that such blocks match
	prelude string
	imports []string
	aliases map[string]string
	long    bool // compiling its imports takes minutes, if they are not in the cache
}

var snippetModules = []snippetModule{
	{
		dir: "middleware/http/frameworks", uses: `frameworks\.|restful\.|fiber\.|shopv1connect\.|kratos\.`,
		aliases: map[string]string{
			"hertzadaptor": "github.com/cloudwego/hertz/pkg/common/adaptor", "kratos": "github.com/go-kratos/kratos/v2/transport/http",
		},
		prelude: `
var g *guard.Guard
var idempotent func(http.Handler) http.Handler
var handler http.Handler
var shop any
var shopv1connect struct{ NewShopHandler func(any, ...connect.HandlerOption) (string, http.Handler) }
`,
		imports: []string{
			"net/http", "time", "connectrpc.com/connect", module + "/guard",
			"github.com/cloudwego/hertz/pkg/app/server", "github.com/emicklei/go-restful/v3",
			"github.com/gin-gonic/gin", "github.com/go-chi/chi/v5", "github.com/kataras/iris/v12",
			"github.com/gofiber/fiber/v2", "github.com/gofiber/fiber/v2/middleware/adaptor", "github.com/gorilla/mux",
			"github.com/klauspost/compress/gzhttp", "github.com/labstack/echo/v4",
			"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp", module + "/middleware/http/frameworks",
		},
	},
	{
		dir: "middleware/watermill", uses: `guardwatermill\.`,
		aliases: map[string]string{"guardwatermill": module + "/middleware/watermill"},
		prelude: "var router *message.Router\nvar publisher message.Publisher\nvar rdb redis.UniversalClient\n",
		imports: []string{
			"time", "github.com/ThreeDotsLabs/watermill/message", "github.com/ThreeDotsLabs/watermill/message/router/middleware",
			"github.com/redis/go-redis/v9", module + "/backend/single", module + "/guard",
		},
	},
	{
		dir: "middleware/jetstream", uses: `guardjetstream\.`,
		aliases: map[string]string{"guardjetstream": module + "/middleware/jetstream"},
		prelude: "var ctx context.Context\nvar js jetstream.JetStream\nvar rdb redis.UniversalClient\nfunc charge(context.Context, jetstream.Msg) error { return nil }\n",
		imports: []string{
			"context", "time", "github.com/nats-io/nats.go/jetstream", "github.com/redis/go-redis/v9",
			module + "/backend/single", module + "/guard", module + "/middleware/jetstream",
		},
	},
	{
		dir: "middleware/grpc", uses: `guardgrpc\.`,
		prelude: `
type accountKey struct{}
var authenticate grpc.UnaryServerInterceptor
var creds grpc.DialOption
var g *guard.Guard
var rdb *redis.Client
var retries grpc.UnaryClientInterceptor
var target string
`,
		imports: []string{
			"github.com/redis/go-redis/v9", "google.golang.org/grpc",
			module + "/backend/single", module + "/guard", module + "/middleware/grpc", module + "/middleware/idempotency",
		},
	},
	{
		dir: "examples", uses: `kgo\.|amqp091`,
		aliases: map[string]string{"amqp": "github.com/rabbitmq/amqp091-go"},
		prelude: `
var connection *amqp.Connection
var ctx context.Context
var g *guard.Guard
func eventID(*kgo.Record) string { return "" }
func handle[M any](context.Context, *M) error { return nil }
`,
		imports: []string{"context", "errors", "time", "github.com/twmb/franz-go/pkg/kgo", module + "/guard"},
	},
	{
		dir: "examples", uses: `stdouttrace\.`,
		imports: []string{
			"context", "flag", "log/slog", "net/http", "os", "os/signal", "syscall",
			"github.com/prometheus/client_golang/prometheus", "github.com/prometheus/client_golang/prometheus/promhttp",
			"github.com/redis/go-redis/v9", "go.opentelemetry.io/otel/exporters/prometheus",
			"go.opentelemetry.io/otel/exporters/stdout/stdouttrace", "go.opentelemetry.io/otel/sdk/metric", "go.opentelemetry.io/otel/sdk/trace",
			module + "/backend/single", module + "/guard", module + "/logging", module + "/middleware/idempotency", module + "/tracing",
		},
	},
	{
		dir: "backend/etcd", uses: `clientv3\.`,
		aliases: map[string]string{"clientv3": "go.etcd.io/etcd/client/v3"},
		imports: []string{"time", module + "/backend/etcd", module + "/guard"},
	},
	{
		dir: "internal/verify", uses: `pgx|go-sql-driver|modernc|guardriver|rivertype|riverdatabasesql`,
		// mysql and sqlite are our packages
		aliases: map[string]string{
			"mysqldriver": "github.com/go-sql-driver/mysql", "sqlitedriver": "modernc.org/sqlite", "guardriver": module + "/middleware/river",
		},
		prelude: `
var config *river.Config
var db *sql.DB
var g *guard.Guard
var pool *pgxpool.Pool
type Charge struct{ Customer string }
func (Charge) Kind() string { return "charge" }
`,
		imports: []string{
			"context", "database/sql", "errors", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool", "github.com/jackc/pgx/v5/stdlib",
			"github.com/riverqueue/river", "github.com/riverqueue/river/riverdriver/riverdatabasesql",
			"github.com/riverqueue/river/riverdriver/riverpgxv5", "github.com/riverqueue/river/rivertype",
			module + "/backend/mysql", module + "/backend/postgres", module + "/backend/sqlite", module + "/guard",
		},
	},
	{
		dir: "bench", long: true, uses: `redisotel\.|redsync\.|redislock\.|rueidislock\.|gocron\.`,
		prelude: `
var ctx context.Context
var g *guard.Guard
var rdb *redis.Client
func buildReport(context.Context) error { return nil }
`,
		imports: []string{
			"context", "errors", "time", "github.com/bsm/redislock", "github.com/go-co-op/gocron/v2",
			"github.com/go-redsync/redsync/v4", "github.com/go-redsync/redsync/v4/redis/goredis/v9",
			"github.com/redis/go-redis/extra/redisotel/v9", "github.com/redis/go-redis/v9",
			"github.com/redis/rueidis/rueidislock", module + "/backend/reentrant", module + "/backend/single", module + "/guard",
			module + "/middleware/gocron",
		},
	},
}

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```")

// pages returns the documentation for users and operators, in English.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md"}
	for _, root := range []string{"docs", "deploy"} {
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && entry.Name() == "i18n":
				return filepath.SkipDir
			case filepath.Ext(path) == ".md":
				all = append(all, filepath.ToSlash(path))
			}
			return nil
		}))
	}
	return all
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// The Go blocks of the documentation compile. A block is a program, or declarations, or a part of
// a function, and what it declares need not be used.
func TestDocs_goBlocksCompile(t *testing.T) {
	t.Parallel()
	require.Greater(t, compileBlocks(t, false), 40, "they were found")
}

// So do those that use the peers.
func TestLong_goBlocksOfTheDocsCompile(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	require.Greater(t, compileBlocks(t, true), 4, "they were found")
}

// compileBlocks compiles the blocks that take long, or the others, and returns how many they are.
func compileBlocks(t *testing.T, long bool) (blocks int) {
	t.Helper()
	own := snippetModule{dir: ".", prelude: snippetPrelude, imports: snippetImports, aliases: snippetAliases}
	checks := map[string]func(file string) error{} // by the uses of the module
	for _, page := range append(pages(t), chineseOnly...) {
		text := readPage(t, page)
		for _, at := range goBlock.FindAllStringSubmatchIndex(text, -1) {
			block, m := text[at[2]:at[3]], own
			for _, other := range snippetModules {
				if regexp.MustCompile(other.uses).MatchString(block) {
					m = other
					break
				}
			}
			if m.long != long {
				continue
			}
			blocks++
			if checks[m.uses] == nil {
				checks[m.uses] = snippetChecker(t, m.dir, slices.AppendSeq(slices.Clone(m.imports), maps.Values(m.aliases))...)
			}
			if err := checks[m.uses](snippetFile(block, m.prelude, m.aliases, m.imports...)); err != nil {
				line := strings.Count(text[:at[2]], "\n") + 1
				t.Errorf("%s:%d does not compile: %v", page, line, err)
			}
		}
	}
	return blocks
}

// Someone who copies the first snippet of a page need not guess its imports.
func TestDocs_theFirstSnippetOfAPageHasItsImports(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), chineseOnly...) {
		first := goBlock.FindStringSubmatch(readPage(t, page))
		if first != nil && !strings.Contains(first[1], "import (") {
			t.Errorf("the first Go block of %s has no imports", page)
		}
	}
}

// A reader pastes a block of the README into a file. It compiles there, without anything that the
// reader would have to guess, as the go command compiles it.
func TestDocs_goBlocksOfTheReadmeCompileAlone(t *testing.T) {
	t.Parallel()
	blocks := goBlock.FindAllStringSubmatch(readPage(t, "README.md"), -1)
	require.NotEmpty(t, blocks, "they were found")
	var imports []string
	for _, block := range blocks {
		for _, line := range importLine.FindAllStringSubmatch(block[1], -1) {
			imports = append(imports, line[1])
		}
	}
	check := strictChecker(t, ".", imports...)
	for _, block := range blocks {
		require.NoError(t, check(block[1]), block[1])
	}
}

var importLine = regexp.MustCompile(`(?m)^\t(?:\w+ )?"([\w./-]+)"$`)

// A test that cannot fail shows nothing.
func TestDocs_blocksThatDoNotCompileAreFound(t *testing.T) {
	t.Parallel()
	check := snippetChecker(t, ".", "context", "errors", module+"/guard")
	compile := func(block string) error {
		return check(snippetFile(block, "var ctx context.Context\nvar g *guard.Guard\n", nil, "context", "errors", module+"/guard"))
	}
	for _, block := range []string{
		"import \"context\"\n\nx := y\n",
		"import \"nosuchpackage\"\n\nx := 1\n",
		"package main\n\nfunc main() { g.Do(ctx) }\n",
		"g.Do(ctx)\n",
		"unknown()\n",
		"var x int = \"text\"\n",
	} {
		require.Error(t, compile(block), block)
	}
	for _, block := range []string{
		"err := g.Close(ctx)\n",
		"import (\n\t\"context\"\n\t\"errors\"\n)\n\nerr := errors.Join(g.Close(context.Background()))\n",
		"import \"errors\"\n\nfunc f() error { return errors.New(\"no\") }\n",
		"package main\n\nimport \"context\"\n\nfunc main() { _ = context.Background() }\n",
	} {
		require.NoError(t, compile(block), block)
	}
}

// snippetHead matches the imports with which a block may begin.
var snippetHead = regexp.MustCompile(`(?s)^import (?:\(\n.*?\n\)|[^\n(]*)\n`)

// snippetFile makes a file out of a block: programs and declarations as they are, and statements
// in a function.
func snippetFile(block, prelude string, aliases map[string]string, imports ...string) string {
	if strings.HasPrefix(block, "package ") {
		return block
	}
	head := snippetHead.FindString(block)
	block = strings.TrimLeft(strings.TrimPrefix(block, head), "\n")
	var file strings.Builder
	file.WriteString("package snippet\n\n" + head)
	for _, path := range imports {
		if !strings.Contains(head, `"`+path+`"`) {
			fmt.Fprintf(&file, "import %q\n", path)
		}
	}
	for alias, path := range aliases {
		if !strings.Contains(head, `"`+path+`"`) {
			fmt.Fprintf(&file, "import %s %q\n", alias, path)
		}
	}
	file.WriteString(prelude)
	if regexp.MustCompile(`^(//[^\n]*\n)*(func|type) `).MatchString(block) {
		file.WriteString(block)
	} else {
		file.WriteString("func _() error {\n" + block + "\nreturn nil\n}\n")
	}
	return file.String()
}

// buildFlags returns the flags with which the test was built. With them, the packages that it
// imports are in the cache of the go command already.
func buildFlags() (flags []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" || setting.Key == "-tags" {
			flags = append(flags, setting.Key+"="+setting.Value)
		}
	}
	return flags
}

// snippetChecker returns a function that checks the types of a file, which may import these
// packages as the module in a folder sees them. What the file declares need not be used.
func snippetChecker(t *testing.T, dir string, paths ...string) func(file string) error {
	t.Helper()
	return typeChecker(t, true, dir, paths)
}

// strictChecker is snippetChecker for a file in which all must be used.
func strictChecker(t *testing.T, dir string, paths ...string) func(file string) error {
	t.Helper()
	return typeChecker(t, false, dir, paths)
}

func typeChecker(t *testing.T, lenient bool, dir string, paths []string) func(file string) error {
	t.Helper()
	args := slices.Concat([]string{"list", "-deps", "-export", "-f", "{{.ImportPath}}={{.Export}}"}, buildFlags(), paths)
	list := exec.CommandContext(t.Context(), "go", args...)
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
			if problem, ok := err.(types.Error); (!ok || !problem.Soft || !lenient) && first == nil {
				first = err
			}
		}}
		_, _ = config.Check("snippet", files, []*ast.File{parsed}, nil)
		return first
	}
}
