package brokers_test

import (
	"database/sql"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/rabbittest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// A broker is one that runs.
type broker struct {
	link link
	// restart kills the server, and starts it again on its data. It is nil if nothing outlives the
	// process.
	restart func(t testing.TB)
	// cut makes the broker deliver what is being handled of a topic to another consumer. It is nil
	// if time does so.
	cut func(t testing.TB, topic string)
}

// A row is a kind of broker.
type row struct {
	name  string
	start func(t testing.TB) broker
	long  bool // its server takes long to start
}

var rows = []row{
	{name: "gochannel", start: startChannel},
	{name: "Redis Streams", start: startRedis},
	{name: "PostgreSQL", start: startSQL},
	{name: "NATS", start: startNATS},
	{name: "RabbitMQ", start: startRabbit, long: true},
}

func startChannel(t testing.TB) broker {
	c := gochannel.NewGoChannel(gochannel.Config{}, quiet)
	t.Cleanup(func() { _ = c.Close() })
	return broker{link: link{inProcess: c}}
}

func startRedis(t testing.TB) broker {
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	return broker{link: link{Address: s.Addr()}, restart: func(testing.TB) { s.Kill(); s.Restart() }}
}

func startSQL(t testing.TB) broker {
	s := postgrestest.Start(t)
	return broker{
		link:    link{Address: s.DSN()},
		restart: func(t testing.TB) { s.Kill(t); s.Restart(t) },
		cut: func(t testing.TB, topic string) {
			db, err := sql.Open("pgx", s.DSN())
			require.NoError(t, err)
			defer db.Close()
			done, err := db.Exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE state = 'idle in transaction' AND strpos(query, $1) > 0`, topic)
			require.NoError(t, err)
			n, err := done.RowsAffected()
			require.NoError(t, err)
			require.Positive(t, n, "connections that handle a message")
		},
	}
}

func startNATS(t testing.TB) broker {
	options := server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}
	var s *server.Server
	run := func(t testing.TB) {
		var err error
		o := options
		s, err = server.NewServer(&o)
		require.NoError(t, err)
		s.Start()
		require.True(t, s.ReadyForConnections(30*time.Second))
	}
	run(t)
	options.Port = s.Addr().(*net.TCPAddr).Port
	stop := func() { s.Shutdown(); s.WaitForShutdown() }
	t.Cleanup(func() { stop() })
	return broker{link: link{Address: s.ClientURL()}, restart: func(t testing.TB) { stop(); run(t) }}
}

func startRabbit(t testing.TB) broker {
	s := rabbittest.Start(t)
	var mu sync.Mutex
	var open []net.Conn
	return broker{
		link: link{Address: s.URL(), amqp: &amqp091.Config{Dial: func(network, address string) (net.Conn, error) {
			c, err := amqp091.DefaultDial(10*time.Second)(network, address)
			mu.Lock()
			defer mu.Unlock()
			open = append(open, c)
			return c, err
		}}},
		restart: func(t testing.TB) { s.Kill(); s.Restart(t) },
		cut: func(testing.TB, string) {
			mu.Lock()
			defer mu.Unlock()
			for _, c := range open {
				_ = c.Close()
			}
			open = nil
		},
	}
}
