package main_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/seed-1795987d/onerun/internal/testkit/certs"
	"github.com/seed-1795987d/onerun/internal/testkit/etcdtest"
)

// A team whose only store is etcd.
func TestStore_commandsOnEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	endpoint := strings.TrimPrefix(server.Endpoints()[0], "http://")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://" + endpoint}
	s.holdsAndMarks()
	code, _, errs := s.run("run", "--fair", "k", "--", "true")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "--fair: the backend keeps no queue")
	s.ok("run", "--once=1h", "--store="+s.url+"/?prefix=jobs/onerun/&tls=false", "k", "--", "true")
	require.Contains(t, s.ok("show", "--store="+s.url+"?prefix=jobs/onerun/", "k"), "k is done")
	require.Contains(t, s.ok("show", "k"), "k is free", "prefixes are apart")
	for want, args := range map[string][]string{
		"it cannot be read":                                          {"--store=etcd://a:secret%zz@host"},
		"escape special characters: / is %2F, #":                     {"--store=etcd://a:secret/x@host"},
		"--store: the URL cannot be used: each of":                   {"--store=etcd://host:port"},
		"a host and a port":                                          {"--store=etcd://host/secret"},
		"a user needs a password":                                    {"--store=etcd://user@host"},
		"they are prefix and tls":                                    {"--store=etcd://host?table=secret"},
		"tls must be true or false":                                  {"--store=etcd://host?tls=secret"},
		"--store: jobs must end with a slash":                        {"--store=etcd://host?prefix=jobs"},
		"--store: a URL of etcd must be the only one":                {"--store=etcd://a,etcd://b"},
		"--backend: redlock is":                                      {"--backend=redlock"},
		"--plain: has no effect on etcd":                             {"--plain=%s"},
		"--tls-ca: open":                                             {"--tls-ca=missing"},
		`etcd: inspect "k" at 127.1.1.1:1,127.1.1.1:2: connection: `: {"--store=etcd://127.1.1.1:1,127.1.1.1:2"},
		"--store: etcd at 127.1.1.1:1: rpc error":                    {"--store=etcd://a:secret@127.1.1.1:1"},
	} {
		code, out, errs := s.run(append([]string{"show", "k"}, args...)...)
		require.Equal(t, 125, code, out)
		require.Contains(t, errs, want, args)
		require.NotContains(t, errs, "secret")
	}
	code, _, errs = s.run("migrate")
	require.Equal(t, 125, code)
	require.Contains(t, errs, "Redis and etcd need no tables")
}

func TestDoctor_etcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t, "quota-backend-bytes=20000000")
	endpoint := strings.TrimPrefix(server.Endpoints()[0], "http://")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://" + endpoint}
	out := s.ok("doctor")
	require.Contains(t, out, "etcd "+endpoint+"\n")
	require.Contains(t, out, "etcd: promises here")
	for _, want := range []string{
		`ok +reach +\S+ answers in`, `ok +version +\S+ has etcd 3`, `ok +database +\S+ has \d+ MiB of a quota of 19 MiB`,
		`note +members +1: if it fails`, `unknown +compaction +cannot be seen: .*--auto-compaction-retention`,
		`ok +try etcd +works`, `ok +try WithShared +works`, `ok +try cron +works`,
	} {
		require.Regexp(t, want, out)
	}
	require.NotContains(t, out, "tls ", "it is on a loopback address")
	require.Regexp(t, `note +reach +127.1.1.1:1 (cannot be reached|does not answer in time)`, s.ok("doctor", "--store="+s.url+",127.1.1.1:1"))
	code, out, _ := s.run("doctor", "--store=etcd://etcd.invalid", "--timeout=2s")
	require.Equal(t, 1, code, out)
	require.Regexp(t, `problem +reach +etcd.invalid:2379`, out)
	require.Regexp(t, `note +tls +.*use tls=true`, out)

	fill(t, server)
	code, out, _ = s.run("doctor")
	require.Equal(t, 1, code, out)
	require.Regexp(t, `problem +try etcd +does not work: the servers accept no writes`, out)
	require.Regexp(t, `note +settings +the database of the server \w+ is full`, out)
	require.Regexp(t, `note +database .*: compact and defragment it`, out)
	require.Contains(t, out, "etcd: do not use it here")
}

// fill fills the database of a server, whose quota is small.
func fill(t *testing.T, server *etcdtest.Server) {
	t.Helper()
	client := etcdClient(t, server)
	for err := error(nil); err == nil; {
		_, err = client.Put(t.Context(), "filler", strings.Repeat("x", 1_000_000))
	}
	alarms, err := client.AlarmList(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, alarms.Alarms)
}

func etcdClient(t *testing.T, server *etcdtest.Server) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// The password is checked when the command connects.
func TestStore_userOfEtcd(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	ctx, client := context.Background(), etcdClient(t, server)
	for _, name := range []string{"root", "jobs"} {
		_, err := client.UserAdd(ctx, name, "s3cret/#")
		require.NoError(t, err)
		_, err = client.RoleAdd(ctx, name)
		require.NoError(t, err)
		_, err = client.UserGrantRole(ctx, name, name)
		require.NoError(t, err)
	}
	_, err := client.RoleGrantPermission(ctx, "jobs", "onerun/", clientv3.GetPrefixRangeEnd("onerun/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = client.AuthEnable(ctx)
	require.NoError(t, err)

	endpoint := strings.TrimPrefix(server.Endpoints()[0], "http://")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://jobs:s3cret%2F%23@" + endpoint}
	s.ok("run", "--once=1h", "nightly", "--", "true")
	require.Contains(t, s.ok("show", "nightly"), "nightly is done")
	out := s.ok("doctor")
	require.Regexp(t, `ok +try etcd +works`, out)
	require.NotContains(t, out, "s3cret")
	code, _, errs := s.run("show", "nightly", "--store=etcd://jobs:wr0ng@"+endpoint)
	require.Equal(t, 125, code)
	require.Regexp(t, `^onerun: --store: etcd at \S+: .*invalid user ID or password`, errs)
	require.NotContains(t, errs, "wr0ng")
}

// Each error of TLS names the flags.
func TestStore_etcdByTLS(t *testing.T) {
	t.Parallel()
	own, others := certs.Make(t), certs.Make(t)
	endpoint := strings.TrimPrefix(etcdtest.StartTLS(t, own).Endpoints()[0], "https://")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://" + endpoint + "?tls=true"}
	all := []string{"--tls-ca=" + own.CA, "--tls-cert=" + own.Cert, "--tls-key=" + own.Key}
	s.ok(slices.Concat([]string{"run", "--once=1h"}, all, []string{"nightly", "--", "true"})...)
	require.Contains(t, s.ok(slices.Concat(all, []string{"show", "nightly"})...), "nightly is done")
	require.Regexp(t, `ok +try etcd +works`, s.ok(slices.Concat(all, []string{"doctor"})...))

	// The end of the connection can be seen before its reason.
	const ca, cert = "signed by unknown authority", "certificate required|broken pipe|server preface"
	withPassword := "--store=etcd://jobs:secret@" + endpoint + "?tls=true"
	for name, test := range map[string]struct {
		want string
		args []string
	}{
		"no authority":        {ca, all[1:]},
		"another authority":   {ca, append([]string{"--tls-ca=" + others.CA}, all[1:]...)},
		"no certificate":      {cert, all[:1]},
		"another certificate": {"unknown certificate authority|" + cert, []string{all[0], "--tls-cert=" + others.Cert, "--tls-key=" + others.Key}},
		"no TLS":              {cert, []string{"--store=etcd://" + endpoint}},
		"password, no CA":     {ca, []string{withPassword}},
		"password, no own":    {cert, []string{withPassword, all[0]}},
		"certificate, no key": {"--tls-cert and --tls-key need each other", all[:2]},
		"another one's key":   {"--tls-cert and --tls-key: tls: private key does not match", []string{all[1], "--tls-key=" + others.Key}},
		"a key for a CA":      {"--tls-ca: .* has no certificate in PEM", []string{"--tls-ca=" + own.Key}},
	} {
		code, out, errs := s.run(slices.Concat(test.args, []string{"show", "k"})...)
		require.Equal(t, 125, code, "%s: %s", name, out)
		require.Regexp(t, test.want, errs, name)
		require.Contains(t, errs, "--tls-c", name)
		require.NotContains(t, errs, "secret")
	}
	code, out, _ := s.run("doctor", "--timeout=1m")
	require.Equal(t, 1, code)
	require.Regexp(t, `problem +reach +\S+ TLS fails, see --tls-ca`, out)
}

func TestDoctor_oldestEtcd(t *testing.T) {
	t.Parallel()
	endpoint := strings.TrimPrefix(etcdtest.StartOldest(t).Endpoints()[0], "http://")
	s := &postgresSite{&site{t: t, dir: t.TempDir()}, "etcd://" + endpoint}
	out := s.ok("doctor")
	require.Regexp(t, `ok +version +\S+ has etcd 3\.[45]\.`, out)
	require.Regexp(t, `note +settings +the server \S+ has version 3\.[45]\.\d+, whose leases have known faults: use`, out)
	require.Regexp(t, `ok +try etcd +works`, out)
	require.Regexp(t, `ok +database +\S+ has \d+ MiB \(the quota cannot be seen\)`, out)
}
