package main_test

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/mysqltest"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
)

// A postgresSite runs commands on a store that speaks SQL, and has no Redis.
type postgresSite struct {
	*site
	url string
}

func newPostgresSite(t *testing.T) *postgresSite {
	t.Helper()
	t.Parallel()
	return &postgresSite{&site{t: t, dir: t.TempDir()}, postgrestest.Start(t).DSN()}
}

func (s *postgresSite) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), program, args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "ONERUN_STORE="+s.url)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

func (s *postgresSite) run(args ...string) (code int, out, errs string) {
	s.t.Helper()
	e := execute(s.t, s.command(args...))
	code = e.wait()
	return code, e.out.String(), e.errs.String()
}

func (s *postgresSite) ok(args ...string) (out string) {
	s.t.Helper()
	code, out, errs := s.run(args...)
	require.Zero(s.t, code, "%v: %s%s", args, out, errs)
	return out
}

// holdsAndMarks uses a lease and a marker, by all commands that show or end them.
func (s *postgresSite) holdsAndMarks() {
	t := s.t
	t.Helper()
	holder := execute(t, s.command("run", "--ttl=9s", "--label=web-1", "report", "--", "sh", "-c", "echo $ONERUN_FENCE$ONERUN_STORE >fence; exec sleep 100"))
	require.Regexp(t, `^\d+\s*$`, s.written("fence"), "the command does not see the store")
	require.Regexp(t, `(?s)^report is held\n +by +web-1\n  since`, s.ok("show", "report"))
	require.Regexp(t, `(?m)^report +held +\S+ +\S+ +web-1$`, s.ok("ls"))
	require.Equal(t, 75, first(s.run("run", "report", "--", "true")))
	require.Regexp(t, `^broken: report was held by web-1`, s.ok("break", "report", "--by=alice"))
	s.ok("run", "--wait=20s", "report", "--", "true")
	require.Equal(t, 124, holder.wait())
	require.Regexp(t, `alice +break +report`, s.ok("log"))

	s.ok("run", "--once=1h", "nightly", "--", "true")
	require.Contains(t, s.ok("show", "nightly"), "nightly is done")
	s.ok("forget", "nightly")
	s.ok("hold", "migration", "--for=1h")
	s.ok("break", "--now", "migration")
	s.ok("run", "--shared", "k", "--", "true")
}

// A team without Redis uses every command.
func TestStore_allCommandsOnPostgreSQL(t *testing.T) {
	s := newPostgresSite(t)
	code, out, errs := s.run("run", "report", "--", "true")
	require.Equal(t, 125, code, out)
	require.Contains(t, errs, `"onerun migrate" creates the table`)
	require.NotContains(t, errs, s.url)
	code, out, _ = s.run("doctor")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `"onerun migrate" creates the table`)
	require.Equal(t, 2, strings.Count(out, "onerun migrate"), "a check, and the summary: "+out)
	require.Regexp(t, `^created onerun_leases in \S+:\d+/\w+\n$`, s.ok("migrate"))
	require.Regexp(t, `^nothing to do: \S+ has onerun_leases\n$`, s.ok("migrate"))

	s.holdsAndMarks()
	code, _, errs = s.run("run", "--fair", "k", "--", "true")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "--fair: the backend keeps no queue")
	require.Contains(t, s.ok("ps"), "no process")
	out = s.ok("doctor")
	require.Contains(t, out, "postgres: promises here")
	require.NotContains(t, out, "sslmode", "it is on a loopback address")
	require.Regexp(t, `ok +try WithShared +works`, out)
	_, out, _ = s.run("doctor", "--timeout=2s", "--store=postgres://db.invalid/x?sslmode=require")
	require.Regexp(t, `note +tls +.*use sslmode=verify-full`, out)
}

// Two terminals, and no server.
func TestStore_commandsOnSQLite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &postgresSite{&site{t: t, dir: dir}, "sqlite:leases.db"}
	file := filepath.Join(dir, "leases.db")
	for _, args := range [][]string{{"run", "report", "--", "true"}, {"ls"}, {"show", "k"}, {"doctor"}} {
		code, _, errs := s.run(args...)
		require.Equal(t, 125, code, errs)
		require.Contains(t, errs, "--store: "+file+` does not exist, or is empty: "onerun migrate" creates it`)
		require.NoFileExists(t, file)
	}
	require.Equal(t, "created onerun_leases in "+file+"\n", s.ok("migrate"))
	require.Equal(t, "nothing to do: "+file+" has onerun_leases\n", s.ok("migrate"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "text"), []byte(strings.Repeat("text\n", 999)), 0o600))
	_, out, _ := s.run("doctor", "--store=sqlite:text")
	require.Regexp(t, `problem +reach .*another program's file`, out)
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `CREATE TABLE users (name TEXT)`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, out, _ = s.run("doctor", "--store=sqlite:app.db")
	require.Contains(t, out, `"onerun migrate" turns on WAL`, "the file of an application")

	s.holdsAndMarks()
	require.Equal(t, 1, oldRows(t, file, `UPDATE onerun_leases SET forget_on = 1, ends = 1, last = 1 WHERE key = CAST('nightly' AS BLOB)`))
	s.ok("run", "k", "--", "true")
	require.Zero(t, oldRows(t, file, ``), "each run deletes some")
	out = s.ok("doctor", "--store=sqlite://"+file)
	require.Contains(t, out, "sqlite "+file+"\n")
	require.Contains(t, out, "sqlite: promises here")
	require.Regexp(t, `ok +try cron +works`, out)
	s.ok("migrate", "--store=sqlite:leases.db?table=jobs")
	require.Contains(t, s.ok("show", "--store=sqlite:leases.db?table=jobs", "k"), "k is free")
	for want, args := range map[string][]string{
		"--store: the URL cannot be used: it names no f": {"--store=sqlite:"},
		"it has the parameter \"mode\"":                  {"--store=sqlite:leases.db?mode=ro"},
		"it names no table":                              {"--store=sqlite:leases.db?table="},
		"it names a database in memory":                  {"--store=sqlite::memory:"},
		"after // it would name a host":                  {"--store=sqlite://leases.db"},
		"--store: Bad-Name must be lower-case":           {"--store=sqlite:leases.db?table=Bad-Name"},
		"--store: " + dir + " is a folder":               {"--store=sqlite:."},
		"the folder " + dir + "/~ does not exist":        {"--store=sqlite:~/x.db"},
		"sqlite (as in sqlite:FILE)":                     {"--store=sqlite3://x"},
		"it is no URL of a store":                        {"--store=sqlite3:x"},
		"--store: a file of SQLite must be":              {"--store=sqlite:leases.db,redis://a"},
		"--backend: redlock is":                          {"--backend=redlock"},
		"--plain: has no effect on SQLite":               {"--plain=%s"},
		"--tls-cert and --tls-key have no e":             {"--tls-ca=file"},
	} {
		code, out, errs := s.run(append([]string{"show", "k"}, args...)...)
		require.Equal(t, 125, code, out)
		require.Contains(t, errs, want, args)
	}
}

// oldRows calls a statement, and returns how many rows of leases can be deleted.
func oldRows(t *testing.T, file, statement string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(5000)")
	require.NoError(t, err)
	defer db.Close()
	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM onerun_leases WHERE forget_on = 1`).Scan(&n))
	return n
}

// A team whose only store is MySQL.
func TestStore_commandsOnMySQL(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "max-connections=50") // a socket
	_, path, _ := strings.Cut(server.Database(t), "(")
	socket, database, _ := strings.Cut(path, ")/")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "mysql://root@/" + database + "?socket=" + socket}
	code, out, errs := s.run("run", "report", "--", "true")
	require.Equal(t, 125, code, out)
	require.Contains(t, errs, `"onerun migrate" creates the table`)
	code, out, _ = s.run("doctor")
	require.Equal(t, 1, code, out)
	require.Contains(t, out, `"onerun migrate" creates the table`)
	require.Equal(t, 2, strings.Count(out, "onerun migrate"), "a check, and the summary: "+out)
	require.NotContains(t, out, "engine")
	require.Equal(t, "created onerun_leases in "+socket+"/"+database+"\n", s.ok("migrate"))
	require.Equal(t, "nothing to do: "+socket+"/"+database+" has onerun_leases\n", s.ok("migrate"))

	s.holdsAndMarks()
	out = s.ok("doctor", "--store=mariadb"+strings.TrimPrefix(s.url, "mysql"))
	require.Contains(t, out, "mysql "+socket+"/"+database+"\n")
	require.Contains(t, out, "mysql: promises here")
	require.Regexp(t, `ok +version +MariaDB`, out)
	require.Regexp(t, `ok +try cron +works`, out)
	s.ok("migrate", "--store="+s.url+"&table=jobs")
	require.Contains(t, s.ok("show", "--store="+s.url+"&table=jobs", "k"), "k is free")
	for want, args := range map[string][]string{
		"--store: the URL cannot be used: it names no database": {"--store=mysql://host"},
		"escape special characters: / is %2F, #":                {"--store=mysql://a:1#secret@host/db"},
		"it cannot be read":                                     {"--store=mysql://a:secret/x@host/db"},
		"an address as in a DSN of Go":                          {"--store=mysql://a:secret@tcp(host:3306)/db"},
		"its parameters cannot be used":                         {"--store=mysql://a:secret@host/db?table=a;b"},
		"those of the Go driver":                                {"--store=mysql://a:secret@host/db?timeout=secret"},
		"it has an empty parameter table":                       {"--store=mysql://a:secret@host/db?table="},
		"it names neither a host":                               {"--store=mysql:///db"},
		"--store: Bad-Name must be lower-case":                  {"--store=mysql://a:secret@host/db?table=Bad-Name"},
		`the table "missing" is missing`:                        {"--store=" + s.url + "&table=missing"},
		"it is no URL of a store":                               {"--store=a:secret@tcp(host:3306)/db"},
		"--store: a URL of MySQL must be":                       {"--store=mysql://a/b,redis://a"},
		"skip_verify is refused":                                {"--store=mysql://10.0.0.1/app?tls=skip-verify"},
		"--backend: redlock is":                                 {"--backend=redlock"},
		"--plain: has no effect on MySQL":                       {"--plain=%s"},
	} {
		code, out, errs := s.run(append([]string{"show", "k"}, args...)...)
		require.Equal(t, 125, code, out)
		require.Contains(t, errs, want, args)
		require.NotContains(t, errs, "secret")
	}
	_, out, _ = s.run("doctor", "--store=mysql://127.1.1.1:1/app", "--timeout=1s")
	require.Regexp(t, `problem +reach`, out)
	_, _, errs = s.run("show", "k", "--store=mysql://app:secret@127.1.1.1:1/app")
	require.Contains(t, errs, `"k" at 127.1.1.1:1/app: connection`)
}

// Tables are apart, and a wrong setting is refused by name, without the password.
func TestStore_tablesAndRefusals(t *testing.T) {
	s := newPostgresSite(t)
	s.ok("migrate")
	jobs := "--store=" + s.url + "&table=job_leases"
	s.ok("migrate", jobs)
	s.ok("run", "--once=1h", jobs, "k", "--", "true")
	require.Contains(t, s.ok("show", jobs, "k"), "k is done")
	require.Contains(t, s.ok("show", "k"), "k is free")
	for want, args := range map[string][]string{
		"must be lower-case letters":                           {"--store=" + s.url + "&table=Bad-Table"},
		"--store: the URL cannot be used":                      {"--store=postgres://u:s3cret#x@host:port/d"},
		"--store: a URL of PostgreSQL":                         {"--store=" + s.url + ",redis://a"},
		"--backend: redlock is":                                {"--backend=redlock"},
		"--plain: has no effect on Postgre":                    {"--plain=%s"},
		"--tls-cert and --tls-key are for R":                   {"--tls-ca=file"},
		"--redis: has no effect beside --store":                {"--redis=redis://a"},
		"--store: the URL cannot be used: it is no URL of a P": {"--store=postgres://h/d?table="},
	} {
		code, out, errs := s.run(append([]string{"show", "k"}, args...)...)
		require.Equal(t, 125, code, out)
		require.Contains(t, errs, want, args)
		require.NotContains(t, errs, "s3cret")
	}
}

func TestStore_ofRedis(t *testing.T) {
	s := newSite(t)
	cmd := s.command("run", "--store=redis://"+s.server.Addr(), "k", "--", "true")
	cmd.Env = append(cmd.Env, "ONERUN_REDIS=redis://127.0.0.1:1")
	require.Zero(t, execute(t, cmd).wait())
	code, _, errs := s.run("migrate")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "Redis and etcd need no tables")
}
