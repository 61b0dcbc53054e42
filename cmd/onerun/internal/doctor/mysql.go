package doctor

import (
	"context"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
)

const mysqlName = "mysql"

// reachMySQL checks whether the server answers, its version, its role and its clock.
func (s *Server) reachMySQL(ctx context.Context, of *connect.Servers) bool {
	const query = `SELECT VERSION(), CAST(@@global.read_only AS CHAR),
		TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`
	var version, readOnly string
	var micros int64
	err := of.DB.PingContext(ctx) // it connects, so that the query below takes one round trip
	start := time.Now()
	if err == nil {
		err = of.DB.QueryRowContext(ctx, query).Scan(&version, &readOnly, &micros)
	}
	took := time.Since(start)
	if err != nil {
		s.add("reach", Problem, "%s", whyUnreachable(err))
		return false
	}
	s.add("reach", OK, "answers in %v", took.Round(time.Microsecond))
	s.addMySQLVersion(version)
	if readOnly == "0" || strings.EqualFold(readOnly, "off") {
		s.add("role", OK, "primary")
	} else {
		s.add("role", Problem, "read-only, as a replica is: it grants no lease")
	}
	s.add("clock", OK, "%v from this host's, ±%v",
		time.UnixMicro(micros).Sub(start.Add(took/2)).Abs().Round(time.Microsecond), (took / 2).Round(time.Microsecond))
	return true
}

func (s *Server) addMySQLVersion(version string) {
	number, _, isMariaDB := strings.Cut(version, "-MariaDB")
	major, minor := parseVersion(number)
	switch {
	case isMariaDB && (major < 10 || major == 10 && minor < 6):
		s.add("version", Problem, "MariaDB %s: the backend needs 10.6", number)
	case isMariaDB:
		s.add("version", OK, "MariaDB %s", number)
	case major < 8:
		s.add("version", Problem, "MySQL %s: the backend needs 8.0", number)
	default:
		s.add("version", Note, "MySQL %s: the backend is tested on MariaDB alone", number)
	}
}

// onMySQL says what the backend promises on a MySQL or MariaDB.
func onMySQL(s *Server) Backend {
	return s.onTable(mysqlName, []string{
		"one holder of a key at a time, also across a restart of the server",
		"fences that grow, which a transaction can check",
	}, "no WithFair", "a failover to an asynchronous replica can forget the newest leases")
}
