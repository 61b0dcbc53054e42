package connect_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard/driver"
)

func open(t *testing.T, c connect.Config) *connect.Servers {
	t.Helper()
	s, err := connect.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestSplit_keepsTheHostsOfASentinelTogether(t *testing.T) {
	require.Equal(t, []string{"redis://a", "redis+sentinel://b:1,c:2/m/0", "unix:///d"},
		connect.Split("redis://a,redis+sentinel://b:1,c:2/m/0,,unix:///d,"))
	require.Equal(t, []string{"redis://a", "redis+sentinel://b:1,c:2/m/0"},
		connect.Split(" redis://a, redis+sentinel://b:1, c:2/m/0 ,\n"))
	require.Empty(t, connect.Split(" "))
}

func TestOpen_servers(t *testing.T) {
	o := open(t, connect.Config{URLs: []string{"redis://user:p%40ss@host:7000/3"}}).Clients[0].(*redis.Client).Options()
	require.Equal(t, []any{"host:7000", "user", "p@ss", 3}, []any{o.Addr, o.Username, o.Password, o.DB})
	require.Nil(t, o.TLSConfig)
	o = open(t, connect.Config{URLs: []string{"rediss://host"}}).Clients[0].(*redis.Client).Options()
	require.Equal(t, "host:6379", o.Addr)
	require.Equal(t, "host", o.TLSConfig.ServerName)
	o = open(t, connect.Config{URLs: []string{"unix://:pass@/run/redis.sock?db=2"}}).Clients[0].(*redis.Client).Options()
	require.Equal(t, []any{"unix", "/run/redis.sock", "pass", 2}, []any{o.Network, o.Addr, o.Password, o.DB})
}

func TestOpen_cluster(t *testing.T) {
	for _, urls := range [][]string{
		{"rediss+cluster://u:p@a:1", "rediss://b:2"}, {"rediss://u:p@a:1", "rediss://b:2"},
	} {
		o := open(t, connect.Config{URLs: urls}).Clients[0].(*redis.ClusterClient).Options()
		require.Equal(t, []string{"a:1", "b:2"}, o.Addrs)
		require.Equal(t, []any{"u", "p"}, []any{o.Username, o.Password})
		require.NotNil(t, o.TLSConfig)
	}
	require.IsType(t, &redis.ClusterClient{}, open(t, connect.Config{URLs: []string{"redis+cluster://a"}}).Clients[0])
}

func TestOpen_sentinel(t *testing.T) {
	s := open(t, connect.Config{URLs: []string{
		"redis+sentinel://u%2F1:p%40@a:1,b:2/main/4?sentinel_username=s&sentinel_password=t%2F",
	}})
	o := s.Clients[0].(*redis.Client).Options()
	require.Equal(t, []any{"u/1", "p@", 4}, []any{o.Username, o.Password, o.DB})
	require.Equal(t, "FailoverClient", o.Addr, "it asks a Sentinel for the address")
}

func TestOpen_quorum(t *testing.T) {
	s := open(t, connect.Config{Backend: connect.RedLock, URLs: []string{"redis://a", "redis://b", "redis+sentinel://c/m"}})
	require.Len(t, s.Clients, 3)
}

// The errors of net/url and go-redis quote what they do not understand.
func TestOpen_errorsContainNoPassword(t *testing.T) {
	for _, address := range []string{
		"redis://u:s3cret#x@host", "redis://u:s3cret/x@host", "redis://u:s3cret%zz@host", "redis://u:s3cret@host:port",
		"s3cret@host", "://s3cret", "u:s3cret@host:6379", "redis://u:s3cret@host/no-number", "redis://u:s3cret@host?x=s3cret",
		"s3cret@x://host", "redis+sentinel://u:s3cret@host", "redis+sentinel://u:s3cret%zz@host/m",
		"redis+sentinel://u:s3cret@host/m/s3cret", "redis+sentinel://host/m?sentinel_password=s3cret%zz",
		"redis+cluster://u:s3cret#x@host", "http://u:s3cret@host",
		"host=db password=s3cret sslrootcert=file://ca.pem", "password=s3cret+x://host", "s3cret\n://host", "user s3cret://host",
	} {
		_, err := connect.Open(connect.Config{URLs: []string{address}})
		require.Error(t, err, address)
		require.ErrorContains(t, err, "--redis: the URL cannot be used: it")
		require.NotContains(t, err.Error(), "s3cret", address)
	}
	_, err := connect.Open(connect.Config{URLs: []string{"redis://a", "redis://u:s3cret#x@host"}})
	require.ErrorContains(t, err, "cannot be used")
	require.NotContains(t, err.Error(), "s3cret")
}

func TestOpen_errorsNameTheFlag(t *testing.T) {
	for flag, c := range map[string]connect.Config{
		"--redis":   {},
		"--backend": {URLs: []string{"redis://a"}, Backend: "disk"},
		"--tls-ca":  {URLs: []string{"redis://a"}, TLS: connect.TLS{CA: "file"}},
		"one URL":   {URLs: []string{"redis+sentinel://a/m", "redis+sentinel://b/m"}},
		"ftp":       {URLs: []string{"ftp://a"}},
		"redis+x":   {URLs: []string{"redis+x://a"}},
	} {
		_, err := connect.Open(c)
		require.ErrorContains(t, err, flag)
	}
}

// sslmode=require is to a PostgreSQL what skip_verify is to a Redis. It is too common to be
// refused.
func TestOpen_knowsAPostgresThatNobodyVerifies(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]bool{
		"db.example/x": true, "db.example/x?sslmode=disable": true, "db.example/x?sslmode=allow": true, "db.example/x?sslmode=prefer": true,
		"db.example/x?sslmode=require": true, "127.0.0.1,db.example/x": true, "192.0.2.1/x?sslmode=require": true,
		"db.example/x?sslmode=verify-ca": false, "db.example/x?sslmode=verify-full": false, "a.example,b.example/x?sslmode=verify-full": false,
		"127.0.0.1/x": false, "[::1]/x": false, "localhost/x": false, "/x?host=/tmp": false,
	} {
		s, err := connect.Open(connect.Config{URLs: []string{"postgres://" + address}})
		require.NoError(t, err, address)
		require.Equal(t, want, s.Unverified, address)
		require.NoError(t, s.Close())
	}
}

// Errors, and the page of inspect, name the server. A user and a password are never in the name.
func TestOpen_namesTheServer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redis://u:s3cret@host:7000/3":             "single host:7000",
		"postgres://u:s3cret@host/app":             "postgres host:5432/app",
		"mysql://u:s3cret@host/app?table=leases":   "mysql host:3306/app",
		"mysql://u:s3cret@/app?socket=/run/m.sock": "mysql /run/m.sock/app",
		"sqlite:/tmp/a@b.db":                       "sqlite /tmp/a@b.db",
		"etcd://a.example,[::1]:1":                 "etcd a.example:2379,[::1]:1",
	} {
		s := open(t, connect.Config{URLs: []string{address}, Create: true})
		facts := driver.Describe(s.Locker)
		require.Equal(t, want, facts.Name+" "+facts.Addr)
		require.NoError(t, facts.Err)
	}
	s := open(t, connect.Config{URLs: []string{"mysql://host/app"}})
	require.ErrorContains(t, mysql.New(s.DB, mysql.WithAddr("u:s3cret@tcp(host)/app")).Describe().Err, "WithAddr: must have no user")
}

// go-redis takes skip_verify from a URL. The password would then go to whoever answers.
func TestOpen_refusesTLSThatVerifiesNothing(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{connect.Single, connect.Reentrant, connect.RedLock} {
		for _, url := range []string{
			"rediss://a:1?skip_verify=true", "rediss://a:1/0?skip_verify=1",
			"rediss+sentinel://a:1,b:1/main?skip_verify=true",
		} {
			_, err := connect.Open(connect.Config{URLs: []string{url}, Backend: backend})
			require.ErrorContains(t, err, "skip_verify is refused", url)
		}
		_, err := connect.Open(connect.Config{URLs: []string{"rediss+cluster://a:1?skip_verify=true"}, Backend: backend})
		require.Error(t, err, "go-redis does not know it there")
		_, err = connect.Open(connect.Config{
			URLs: []string{"rediss://a:1", "rediss://b:1?skip_verify=true", "rediss://c:1"}, Backend: backend,
		})
		require.Error(t, err)
	}
	s, err := connect.Open(connect.Config{URLs: []string{"rediss://a:1?skip_verify=false"}})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
