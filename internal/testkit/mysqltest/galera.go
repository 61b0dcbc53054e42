package mysqltest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/seed-1795987d/onerun/internal/testkit/daemon"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
)

// galera are the places of the library in Debian and elsewhere.
var galera = []string{"/usr/lib/galera/libgalera_smm.so", "/usr/lib64/galera-4/libgalera_smm.so"}

// StartGalera runs a cluster of two servers, which both accept writes, on ports of the loopback.
// They stop when the test ends. The first one has two votes, so it goes on without the second one,
// and the second one does not go on without it. A server that is silent is out after two seconds.
func StartGalera(t testing.TB) (first, second *Server) {
	t.Helper()
	leftout.If(t, os.Getenv(dsnEnv) != "", "it needs servers of its own, and "+dsnEnv+" is set")
	library := ""
	for _, path := range galera {
		if _, err := os.Stat(path); err == nil {
			library = path
		}
	}
	if library == "" {
		leftout.Unless(t, requireEnv, os.ErrNotExist, "Galera", "apt-get install galera-4")
	}
	ports := daemon.FreePorts(t, 6)
	settings := func(name string, votes int, ports []string) []string {
		return []string{
			"wsrep-on=1", "wsrep-provider=" + library, "wsrep-node-name=" + name,
			"binlog-format=ROW", "innodb-autoinc-lock-mode=2", "wsrep-sst-method=rsync",
			"wsrep-node-address=127.0.0.1", "wsrep-sst-receive-address=127.0.0.1:" + ports[2],
			fmt.Sprintf("wsrep-provider-options=gcache.size=16M;gmcast.listen_addr=tcp://127.0.0.1:%s;"+
				"ist.recv_addr=127.0.0.1:%s;pc.weight=%d;evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S", ports[0], ports[1], votes),
		}
	}
	cluster := "wsrep-cluster-address=gcomm://127.0.0.1:" + ports[0] + ",127.0.0.1:" + ports[3]
	both := []string{cluster, "wsrep-cluster-name=" + ports[0]}
	first = Start(t, append(settings("first", 2, ports[:3]), append(both, "wsrep-new-cluster")...)...)
	first.set = first.set[:len(first.set)-1] // it joins when it comes back
	first.AwaitGalera(t, 1)
	second = Start(t, append(settings("second", 1, ports[3:]), both...)...)
	first.AwaitGalera(t, 2)
	second.AwaitGalera(t, 2)
	return first, second
}

// AwaitGalera waits until a server is one of a cluster of so many, and takes statements.
func (s *Server) AwaitGalera(t testing.TB, servers int) {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		t.Fatalf("mysqltest: galera: %v", err)
	}
	defer db.Close()
	for deadline := time.Now().Add(daemon.Patience); ; time.Sleep(20 * time.Millisecond) {
		status, err := galeraStatus(db)
		if err == nil && status == fmt.Sprintf("Primary %d ON", servers) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("mysqltest: galera: want %d servers, found %q: %v", servers, status, err)
		}
	}
}

// galeraStatus returns the state of the cluster, its size, and whether the server takes statements.
func galeraStatus(db *sql.DB) (string, error) {
	var found []string
	var failed error
	for _, name := range []string{"wsrep_cluster_status", "wsrep_cluster_size", "wsrep_ready"} {
		var value string
		failed = errors.Join(failed, db.QueryRow("SHOW STATUS LIKE '"+name+"'").Scan(&name, &value))
		found = append(found, value)
	}
	return strings.Join(found, " "), failed
}
