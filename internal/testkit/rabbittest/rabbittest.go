// Package rabbittest starts real RabbitMQ servers for tests.
//
//	connection, err := amqp091.Dial(rabbittest.Start(t).URL())
//
// A server takes some seconds to start, so tests share one.
package rabbittest

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// requireEnv names the variable that turns a left-out test into a failed one.
const requireEnv = "ONERUN_REQUIRE_RABBITMQ"

// folder has the programs of Debian's package.
const folder = "/usr/lib/rabbitmq/bin"

// patience is how long it may take to start, on a machine that is busy.
const patience = 2 * time.Minute

// A Server is a RabbitMQ on a free port, with an epmd of its own, which finds nodes of Erlang.
type Server struct {
	daemon, epmd daemon.Daemon
	port         string
	env          []string
}

// Start runs a server and returns when it accepts connections. It is stopped when the test ends,
// and its log is shown if the test failed. If there is no RabbitMQ, the test is skipped, or fails
// when ONERUN_REQUIRE_RABBITMQ is set to anything.
func Start(t testing.TB) *Server {
	t.Helper()
	epmd, err := exec.LookPath("epmd")
	if err == nil {
		_, err = os.Stat(filepath.Join(folder, "rabbitmq-server"))
	}
	if err != nil {
		leftout.Unless(t, requireEnv, err, "RabbitMQ", "apt-get install rabbitmq-server")
	}
	ports := daemon.FreePorts(t, 3)
	s := &Server{port: ports[0]}
	s.epmd = daemon.Daemon{Name: "rabbittest", Bin: filepath.Dir(epmd), User: "rabbitmq", Stop: syscall.SIGKILL, Thaw: func() {}}
	s.epmd.RunFor(t, func() error {
		return s.epmd.Serve(answers(ports[2]), "epmd", "-port", ports[2], "-address", "127.0.0.1")
	})
	// It is killed: what it has is the test's.
	s.daemon = daemon.Daemon{Name: "rabbittest", Bin: folder, User: "rabbitmq", Stop: syscall.SIGKILL, Thaw: func() {}, Patience: patience}
	s.daemon.RunFor(t, func() error {
		s.env = append(os.Environ(),
			"HOME="+s.daemon.Dir, "RABBITMQ_NODENAME=test"+s.port+"@localhost", "RABBITMQ_MNESIA_BASE="+s.daemon.Data(),
			"RABBITMQ_NODE_IP_ADDRESS=127.0.0.1", "RABBITMQ_NODE_PORT="+s.port, "RABBITMQ_DIST_PORT="+ports[1],
			"ERL_EPMD_PORT="+ports[2], "ERL_EPMD_ADDRESS=127.0.0.1",
			"RABBITMQ_LOGS=-", "RABBITMQ_LOG_BASE="+s.daemon.Dir, "RABBITMQ_PID_FILE="+filepath.Join(s.daemon.Dir, "pid"),
			"RABBITMQ_ENABLED_PLUGINS_FILE="+filepath.Join(s.daemon.Dir, "plugins"), "RABBITMQ_CONFIG_FILE="+filepath.Join(s.daemon.Dir, "none"),
			// the script becomes the server, whose process is then the one that is killed
			"RABBITMQ_ALLOW_INPUT=1", "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput +S 1:1",
		)
		return s.serve()
	})
	return s
}

func (s *Server) serve() error {
	s.daemon.Env = s.env
	return s.daemon.Serve(answers(s.port), "rabbitmq-server")
}

// answers returns what reports whether a port accepts connections.
func answers(port string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	}
}

// URL returns the address of the server, as amqp091.Dial takes it.
func (s *Server) URL() string { return "amqp://guest:guest@127.0.0.1:" + s.port + "/" }

// Kill ends the server with SIGKILL.
func (s *Server) Kill() { s.daemon.Process.Kill() }

// Restart starts a server that was killed again, on its data.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.serve(); err != nil {
		t.Fatalf("rabbittest: restart: %v", err)
	}
}
