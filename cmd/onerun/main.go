// Onerun runs a command once, cluster-wide, and checks the servers that keep its leases.
//
//	onerun run --once-per 24h nightly-backup -- ./backup.sh
//	onerun doctor
//
// See docs/operate.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// Exit codes beside those of the command that runs.
const (
	exitProblem = 1   // doctor has found a problem
	exitBusy    = 75  // EX_TEMPFAIL of sysexits.h
	exitLost    = 124 // as of timeout(1)
	exitError   = 125 // these as of env(1)
	exitNoExec  = 126
	exitNoFile  = 127
	exitSignal  = 128 // and the signal
)

// globals are the flags of all commands.
type globals struct {
	Redis     []string         `placeholder:"URL" sep:"none" env:"ONERUN_REDIS" help:"URL of a server: redis://, rediss:// (TLS) or unix://; redis+sentinel://host,host/master/db; redis+cluster://. Several are the nodes of a Cluster, or of a RedLock with --backend redlock. A password on the command line is seen by all users of the host: prefer ONERUN_REDIS, which takes several, separated by commas."`
	Store     []string         `placeholder:"URL" sep:"none" env:"ONERUN_STORE" help:"URL of the store: postgres://user:password@host/database, with ?table=NAME for another table than onerun_leases; mysql://user:password@host/database; etcd://host:2379,host:2379; sqlite:FILE, for the processes of one host; or any URL of --redis. A password on the command line is seen by all users of the host: prefer ONERUN_STORE. It comes before ONERUN_REDIS."`
	Backend   string           `default:"single" enum:"single,reentrant,redlock" env:"ONERUN_BACKEND" help:"single, reentrant (shares its keys with Redisson) or redlock (a quorum)."`
	Namespace string           `env:"ONERUN_NAMESPACE" help:"Put before every key, as in namespace::key."`
	Plain     string           `placeholder:"PATTERN" env:"ONERUN_PLAIN" help:"Keys have the names of another library's locks, as by WithPlainKeys: %s stands for the key, as in job-lock:%s."`
	TLSCA     string           `name:"tls-ca" placeholder:"FILE" env:"ONERUN_TLS_CA" help:"Certificates of the authorities that sign the servers' certificates, in PEM."`
	TLSCert   string           `name:"tls-cert" placeholder:"FILE" env:"ONERUN_TLS_CERT" help:"Certificate of this client."`
	TLSKey    string           `name:"tls-key" placeholder:"FILE" env:"ONERUN_TLS_KEY" help:"Key of the certificate."`
	JSON      bool             `name:"json" help:"Print JSON, also errors. Durations are numbers of seconds, and null if they do not end."`
	Version   kong.VersionFlag `help:"Print the version."`
}

// open returns the store that the flags name. The caller must close it.
func (g *globals) open() (*connect.Servers, error) { return g.connect(false) }

// connect is open. It creates the file of an SQLite if create is set.
func (g *globals) connect(create bool) (*connect.Servers, error) {
	urls := split(g.Store)
	store := len(urls) > 0
	if !store {
		urls = split(g.Redis)
	}
	files := connect.TLS{CA: g.TLSCA, Cert: g.TLSCert, Key: g.TLSKey}
	servers, err := connect.Open(connect.Config{URLs: urls, Backend: g.Backend, TLS: files, Plain: g.Plain, Create: create})
	if err = asFlag(err); err != nil && store {
		err = errors.New(strings.ReplaceAll(err.Error(), "--redis:", "--store:"))
	}
	return servers, err
}

func split(lists []string) (urls []string) {
	for _, list := range lists {
		urls = append(urls, connect.Split(list)...)
	}
	return urls
}

// oneStore refuses --redis beside a store: one of them would be ignored.
func (c *commands) oneStore(own []string) error {
	isRedis := func(arg string) bool { return arg == "--redis" || strings.HasPrefix(arg, "--redis=") }
	if len(split(c.Store)) > 0 && slices.ContainsFunc(own, isRedis) {
		return errors.New("--redis: has no effect beside --store (or ONERUN_STORE), which names the store already")
	}
	return nil
}

type commands struct {
	globals

	Run    runCommand    `cmd:"" help:"Run a command under a lease on a key. It ends before the lease does."`
	Doctor doctorCommand `cmd:"" help:"Check the servers, and say what each backend promises there."`

	Key     keyCommand     `cmd:"" help:"Say under which key the store knows a request, a call, a task or a job."`
	Show    showCommand    `cmd:"" help:"Show who holds a key, since when, and who waits for it."`
	Ls      lsCommand      `cmd:"" help:"List keys that are held, kept or done."`
	Break   breakCommand   `cmd:"" help:"Take a key from its holder, without two at a time."`
	Forget  forgetCommand  `cmd:"" help:"Forget that work is done, so that it can run again."`
	Hold    holdCommand    `cmd:"" help:"Keep a key busy for some time, so that nothing runs under it."`
	Ps      psCommand      `cmd:"" help:"Show what processes hold that report it."`
	Jobs    jobsCommand    `cmd:"" help:"List the cron jobs of all processes."`
	Records recordsCommand `cmd:"" help:"Show the newest ticks of a job: who ran them, and why some were not."`
	Pause   pauseCommand   `cmd:"" help:"Pause jobs, for a time or until they are resumed."`
	Resume  resumeCommand  `cmd:"" help:"Resume jobs."`
	Trigger triggerCommand `cmd:"" help:"Run jobs now, each once, in one of the processes that have it."`
	Log     logCommand     `cmd:"" help:"Show what operators have changed, who, and why."`
	UI      uiCommand      `cmd:"" name:"ui" help:"Serve a page for operators on this host."`
	Migrate migrateCommand `cmd:"" help:"Create the table of the leases in PostgreSQL, MySQL or SQLite."`

	Completion completionCommand `cmd:"" help:"Print a script by which a shell completes the words of onerun."`
}

func main() {
	if code, keeper := keep(); keeper {
		os.Exit(code)
	}
	os.Exit(start(os.Args[1:]))
}

// An exit is the end of the program with a code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// silence is the log of go-redis: what matters comes as an error.
type silence struct{}

// Printf implements the logger of go-redis.
func (silence) Printf(context.Context, string, ...any) {}

// start runs the program, and returns its exit code.
func start(args []string) int {
	redis.SetLogger(silence{})
	var c commands
	parser, err := newParser(&c)
	if err != nil {
		return say(err, "", false)
	}
	if len(args) > 0 && args[0] == completeArg {
		return say(terminal.Own(os.Stdout, complete(parser.Model.Node, args[1:])), "", false)
	}
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	at := slices.Index(args, "--")
	own := args
	if at >= 0 {
		own = args[:at]
		if isRun(parser, own) {
			args, c.Run.command = own, args[at+1:]
		}
	}
	call, err := parser.Parse(args)
	if err != nil {
		return say(inWords(err), "", slices.Contains(own, "--json"))
	}
	if err := c.oneStore(own); err != nil {
		return say(err, "", c.JSON)
	}
	key := ""
	if of, ok := call.Selected().Target.Interface().(interface{ about() string }); ok {
		key = of.about()
	}
	return say(call.Run(&c.globals), key, c.JSON)
}

// newParser returns the parser of the commands.
func newParser(c *commands) (*kong.Kong, error) {
	parser, err := kong.New(c, kong.Name("onerun"), kong.Vars{"version": version()}, kong.Help(printHelp),
		kong.Description("Runs work once, cluster-wide."), kong.KindMapper(reflect.String, kong.MapperFunc(asGiven)))
	if err == nil {
		withExamples(parser.Model.Node)
	}
	return parser, err
}

// isRun reports whether the arguments are those of run. Its command follows "--", and the parser
// must not look at that.
func isRun(parser *kong.Kong, args []string) bool {
	call, err := kong.Trace(parser, args)
	if err != nil {
		return false
	}
	command := call.Selected()
	return command != nil && command.Name == "run"
}

// asGiven sets a text to the bytes of an argument. The mapper of kong makes JSON of it, so it would
// change a key that is not UTF-8.
func asGiven(c *kong.DecodeContext, target reflect.Value) error {
	token, err := c.Scan.PopValue("string")
	if err != nil {
		return err
	}
	target.SetString(fmt.Sprint(token.Value))
	return nil
}

// A failure is an error as --json prints it.
type failure struct {
	Error string `json:"error"`
	Key   string `json:"key,omitempty"`
	Exit  int    `json:"exit"`
}

// say prints an error, which may be about a key, and returns the exit code that it stands for.
func say(err error, key string, asJSON bool) int {
	var code exit
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case asJSON:
		_ = terminal.JSON(os.Stderr, "", failure{err.Error(), key, exitError})
	default:
		terminal.Line(os.Stderr, "onerun: %v", err)
	}
	return exitError
}
