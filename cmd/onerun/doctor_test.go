package main_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A diagnosis is what doctor --json prints.
type diagnosis struct {
	code     int
	text     string
	Problems int
	Servers  []struct {
		Addr   string
		Checks []struct{ Name, State, Text string }
	}
	Backends []struct {
		Name             string
		Works            bool
		Promises, Limits []string
	}
}

// diagnose runs doctor with arguments.
func diagnose(t *testing.T, args ...string) *diagnosis {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append([]string{"doctor", "--json"}, args...)...)
	out, err := cmd.Output()
	d := &diagnosis{code: cmd.ProcessState.ExitCode(), text: string(out)}
	require.NoError(t, json.Unmarshal(out, d), "%s %v", out, err)
	require.Equal(t, d.Problems > 0, d.code == 1)
	return d
}

func url(s *redistest.Server) string { return "--redis=redis://" + s.Addr() }

// check requires the state of a check of the first server that has it, and returns its text.
func (d *diagnosis) check(t *testing.T, name, state string) string {
	t.Helper()
	for _, s := range d.Servers {
		for _, c := range s.Checks {
			if c.Name == name {
				require.Equal(t, state, c.State, "%s: %s", name, c.Text)
				return c.Text
			}
		}
	}
	require.Fail(t, "no check", "%s is not in %s", name, d.text)
	return ""
}

// backend returns whether a backend works, and all that is said about it.
func (d *diagnosis) backend(t *testing.T, name string) (works bool, text string) {
	t.Helper()
	for _, b := range d.Backends {
		if b.Name == name {
			return b.Works, strings.Join(append(b.Promises, b.Limits...), "\n")
		}
	}
	require.Fail(t, "no backend", name)
	return false, ""
}

func set(t *testing.T, s *redistest.Server, settings ...string) {
	t.Helper()
	client := s.Client(t)
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		require.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
	}
}

func TestDoctor_aServerWithoutProblems(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always", "--maxmemory", "100mb")
	d := diagnose(t, url(s))
	require.Zero(t, d.code, d.text)
	for _, check := range d.Servers[0].Checks {
		require.Equal(t, "ok", check.State, check)
	}
	require.Contains(t, d.check(t, "version", "ok"), "Redis ")
	for _, name := range []string{"single", "reentrant"} {
		works, _ := d.backend(t, name)
		require.True(t, works)
	}
	works, text := d.backend(t, "redlock")
	require.False(t, works)
	require.Contains(t, text, "three or more servers")
	keys, err := s.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.Regexp(t, ":(fence|log:onerun-doctor|count:onerun-doctor|lease:onerun-doctor-.*)$|^onerun-doctor-", key, "nothing else is left, and this for 100 ms")
	}
}

func TestDoctor_aServerThatEvictsLeases(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	set(t, s, "maxmemory-policy=volatile-lru")
	d := diagnose(t, url(s))
	require.Zero(t, d.code, "nothing is evicted without a limit")
	require.Contains(t, d.check(t, "maxmemory", "note"), "volatile-lru")
	set(t, s, "maxmemory=50mb")
	d = diagnose(t, url(s))
	require.Equal(t, 1, d.Problems)
	require.Contains(t, d.check(t, "maxmemory", "problem"), "volatile-lru evicts leases")
	works, _ := d.backend(t, "single")
	require.False(t, works)
}

func TestDoctor_whatARestartForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for _, c := range []struct{ settings, state, says, limit string }{
		{"save=", "note", "none: a restart forgets all", "a restart forgets leases and done markers"},
		{"save=60 1", "note", "snapshots, the last", "since the last snapshot"},
		{"appendonly=yes appendfsync=everysec", "note", "AOF, fsync everysec", "last second"},
		{"appendfsync=always", "ok", "forgets nothing", ""},
	} {
		if first, second, two := strings.Cut(c.settings, " append"); two {
			set(t, s, first, "append"+second)
		} else {
			set(t, s, c.settings)
		}
		d := diagnose(t, url(s))
		require.Contains(t, d.check(t, "persistence", c.state), c.says)
		_, text := d.backend(t, "single")
		require.Contains(t, text, c.limit)
	}
}

func TestDoctor_aServerThatCannotWriteToItsDisk(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--enable-protected-configs", "yes")
	dir, err := os.MkdirTemp("", "gone")
	require.NoError(t, err)
	set(t, s, "dir="+dir, "save=3600 1")
	require.NoError(t, os.Remove(dir))
	client := s.Client(t)
	require.NoError(t, client.BgSave(t.Context()).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	}, 10*time.Second, 10*time.Millisecond)
	d := diagnose(t, url(s))
	d.check(t, "disk", "problem")
	require.Contains(t, d.check(t, "try single", "problem"), "MISCONF")
}

func TestDoctor_aServerThatCannotBeReached(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">s3cret", "+@all", "~*", "&*").Err())
	d := diagnose(t, "--redis=redis://app:wr0ng@"+s.Addr())
	require.Contains(t, d.check(t, "reach", "problem"), "refuses the user or the password")
	require.NotContains(t, d.text, "wr0ng")
	d = diagnose(t, "--redis=rediss://"+s.Addr(), "--timeout=1s")
	d.check(t, "reach", "problem")
	s.Freeze()
	redistest.Within(t, 9*time.Second, "a diagnosis with a timeout of 500 ms", func() { d = diagnose(t, url(s), "--timeout=500ms") })
	require.Contains(t, d.check(t, "reach", "problem"), "does not answer in time")
	s.Kill()
	d = diagnose(t, url(s))
	require.Contains(t, d.check(t, "reach", "problem"), "refused")
	works, _ := d.backend(t, "single")
	require.False(t, works)
}

// Each line of docs/acl.md gives a user what its title says.
func TestDoctor_rights(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client(t)
	lines := redistest.ACLLines(t, "../../docs/acl.md")
	features := map[string]string{
		"single, WithFair": "try WithFair", "single, WithShared or WithLimit": "try WithShared",
		"single, WithReplicas": "try WithReplicas", "single, cron": "try cron",
		"reentrant, WithFair": "try WithFair", "reentrant, cron": "try cron",
	}
	for _, title := range []string{"single", "single, WithFair", "single, WithShared or WithLimit", "single, WithReplicas", "single, cron", "reentrant", "reentrant, WithFair", "reentrant, cron"} {
		require.NotEmpty(t, lines[title], title)
		args := []any{}
		for word := range strings.FieldsSeq(lines[title]) {
			args = append(args, word)
		}
		require.NoError(t, client.Do(t.Context(), "ACL", "DELUSER", "app").Err())
		require.NoError(t, client.Do(t.Context(), args...).Err())
		backend, _, _ := strings.Cut(title, ",")
		namespace := ""
		if backend == "reentrant" {
			namespace = "import"
		}
		d := diagnose(t, "--redis=redis://app:secret@"+s.Addr(), "--backend="+backend, "--namespace="+namespace)
		require.Zero(t, d.code, "%s: %s", title, d.text)
		d.check(t, "try "+backend, "ok")
		d.check(t, "try notifications", "ok")
		d.check(t, "version", "ok")
		for other, check := range features {
			switch {
			case other == title:
				d.check(t, check, "ok")
			case title == "single" && strings.HasPrefix(other, title):
				require.Contains(t, d.check(t, check, "note"), "docs/acl.md")
			}
		}
		if backend == "single" {
			require.Contains(t, d.check(t, "try reentrant", "note"), "docs/acl.md")
		}
	}
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "app", "resetchannels").Err())
	d := diagnose(t, "--redis=redis://app:secret@"+s.Addr(), "--backend=reentrant", "--namespace=import")
	d.check(t, "try notifications", "note")
	require.NoError(t, client.Do(t.Context(), "ACL", "SETUSER", "app", "-evalsha", "-eval").Err())
	d = diagnose(t, "--redis=redis://app:secret@"+s.Addr())
	require.Contains(t, d.check(t, "try single", "problem"), "docs/acl.md")
	works, text := d.backend(t, "single")
	require.False(t, works)
	require.Contains(t, text, "NOPERM")
}

func TestDoctor_replicas(t *testing.T) {
	t.Parallel()
	all := redistest.StartSentinel(t)
	d := diagnose(t, url(all.Replica))
	require.Contains(t, d.check(t, "role", "problem"), "replica of 127.0.0.1")
	require.Contains(t, d.check(t, "try single", "problem"), "READONLY")
	set(t, all.Master, "min-replicas-to-write=1")
	d = diagnose(t, "--redis=redis+sentinel://"+strings.Join(all.SentinelAddrs(), ",")+"/"+masterName(t, all)+"/0")
	require.Zero(t, d.code, d.text)
	require.Regexp(t, "^1, the slowest heard from [0-9]+ s ago, min-replicas-to-write 1: a failover can forget", d.check(t, "replicas", "note"))
	_, text := d.backend(t, "single")
	require.Contains(t, text, "a failover can forget the newest leases")
	set(t, all.Master, "min-replicas-to-write=2")
	d = diagnose(t, url(all.Master))
	require.Contains(t, d.check(t, "try single", "problem"), "NOREPLICAS")
}

func masterName(t *testing.T, s *redistest.Sentinel) string {
	t.Helper()
	client := redis.NewSentinelClient(&redis.Options{Addr: s.SentinelAddrs()[0]})
	defer client.Close()
	masters, err := client.Masters(t.Context()).Result()
	require.NoError(t, err)
	return masters[0].(map[any]any)["name"].(string)
}

func TestDoctor_clock(t *testing.T) {
	t.Parallel()
	s, clock := redistest.StartWithClock(t)
	clock.Jump(-5 * time.Minute)
	d := diagnose(t, url(s))
	require.Zero(t, d.code, d.text)
	require.Regexp(t, "^-(4m59|5m0)", d.check(t, "clock", "note"))
}

func TestDoctor_cluster(t *testing.T) {
	t.Parallel()
	all := redistest.StartCluster(t)
	d := diagnose(t, "--redis=redis+cluster://"+all.Nodes[0].Addr())
	require.Zero(t, d.code, d.text)
	require.Len(t, d.Servers, 4, "the Cluster, and three masters")
	require.Equal(t, "3 masters serve all slots", d.check(t, "cluster", "ok"))
	d = diagnose(t, url(all.Nodes[0]))
	require.Contains(t, d.check(t, "role", "problem"), "redis+cluster://")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, node := range all.Nodes {
		require.NoError(t, node.Client(t).ClusterDelSlotsRange(ctx, 0, 100).Err())
	}
	d = diagnose(t, url(all.Nodes[0]), url(all.Nodes[1]))
	require.Contains(t, d.check(t, "cluster", "problem"), "of 16384 slots")
}

func TestDoctor_quorum(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartN(t, 3)
	args := []string{"--backend=redlock"}
	for _, node := range nodes {
		args = append(args, url(node))
	}
	d := diagnose(t, args...)
	require.Zero(t, d.code, d.text)
	works, text := d.backend(t, "redlock")
	require.True(t, works)
	require.Contains(t, text, "as long as 2 of 3 nodes answer")
	require.Contains(t, text, "1 more may fail now")
	require.Contains(t, text, "3 nodes can forget leases")
	nodes[2].Kill()
	d = diagnose(t, args...)
	require.Equal(t, 1, d.Problems, "although the quorum works")
	works, text = d.backend(t, "redlock")
	require.True(t, works)
	require.Contains(t, text, "0 more may fail now")
	d = diagnose(t, "--backend=redlock", url(nodes[0]), url(nodes[1]), strings.ReplaceAll(url(nodes[1]), "127.0.0.1", "localhost"))
	require.Contains(t, d.check(t, "identity", "problem"), "is the same server as "+nodes[1].Addr())
	d = diagnose(t, "--backend=redlock", url(nodes[0]), url(nodes[1]))
	require.Equal(t, 1, d.Problems)
	_, text = d.backend(t, "redlock")
	require.Contains(t, text, "it needs three or more")
}

func TestDoctor_tls(t *testing.T) {
	t.Parallel()
	s := redistest.StartTLS(t)
	files := s.Server.Client(t).ConfigGet(t.Context(), "tls-*-file").Val()
	ca, cert, key := "--tls-ca="+files["tls-ca-cert-file"], "--tls-cert="+files["tls-cert-file"], "--tls-key="+files["tls-key-file"]
	address := "--redis=rediss://" + s.TLSAddr
	require.Zero(t, diagnose(t, address, ca, cert, key).code)
	require.Contains(t, diagnose(t, address, cert, key).check(t, "reach", "problem"), "TLS fails")
	require.Eventually(t, func() bool { // the server's reset can arrive before its reason is read
		return strings.Contains(diagnose(t, address, ca).check(t, "reach", "problem"), "certificate required")
	}, 30*time.Second, 10*time.Millisecond)
	for name, args := range map[string][]string{
		"--tls-ca": {address, "--tls-ca=/nowhere.pem"}, "--tls-key": {address, ca, cert}, "rediss": {url(s.Server), ca},
	} {
		cmd := exec.CommandContext(t.Context(), program, append([]string{"doctor"}, args...)...)
		out, err := cmd.CombinedOutput()
		require.Error(t, err)
		require.Equal(t, 125, cmd.ProcessState.ExitCode())
		require.Contains(t, string(out), name)
	}
}

func TestDoctor_forPeople(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	out, err := exec.CommandContext(t.Context(), program, "doctor", url(s)).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), fmt.Sprintf("%s\n  ok    reach", s.Addr()))
	require.Contains(t, string(out), "\nno problems\n")
}

func TestDoctor_proxiesThatRouteOrParseScripts(t *testing.T) {
	t.Parallel()
	servers := redistest.StartN(t, 3) // the one that parses is to know no script yet
	for name, c := range map[string]struct {
		proxy *redistest.Router
		says  string
	}{
		"by the first key": {redistest.StartFirstKey(t, servers[0].Addr(), servers[1].Addr()), "the server of its first key"},
		"parses":           {redistest.StartRefusing(t, servers[2].Addr(), false), "script_check_enable"},
		"neither":          {redistest.StartFirstKey(t, servers[0].Addr()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := diagnose(t, "--redis=redis://"+c.proxy.Addr()+"?protocol=2")
			require.Zero(t, d.code, d.text)
			if c.says != "" {
				require.Contains(t, d.check(t, "scripts", "note"), c.says)
				return
			}
			for _, check := range d.Servers[0].Checks {
				require.NotEqual(t, "scripts", check.Name, check.Text)
			}
		})
	}
}
