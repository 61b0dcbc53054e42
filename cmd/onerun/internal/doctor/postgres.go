package doctor

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
)

const postgresName = "postgres"

// oldestPostgres is the oldest version that the backend supports, as server_version_num has it.
const oldestPostgres = 120000

// reachPostgres checks whether the server answers, its version, its role and its clock.
func (s *Server) reachPostgres(ctx context.Context, of *connect.Servers) bool {
	const query = `SELECT current_setting('server_version'),
		current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp()`
	var (
		version string
		number  int
		standby bool
		clock   time.Time
	)
	err := of.DB.PingContext(ctx) // it connects, so that the query below takes one round trip
	start := time.Now()
	if err == nil {
		err = of.DB.QueryRowContext(ctx, query).Scan(&version, &number, &standby, &clock)
	}
	took := time.Since(start)
	if err != nil {
		s.add("reach", Problem, "%s", whyUnreachable(err))
		return false
	}
	s.add("reach", OK, "answers in %v", took.Round(time.Microsecond))
	if number < oldestPostgres {
		s.add("version", Problem, "PostgreSQL %s: the backend needs 12", version)
	} else {
		s.add("version", OK, "PostgreSQL %s", version)
	}
	if standby {
		s.add("role", Problem, "standby: it takes no writes, so it grants no lease")
	} else {
		s.add("role", OK, "primary")
	}
	s.add("clock", OK, "%v from this host's, ±%v",
		clock.Sub(start.Add(took/2)).Abs().Round(time.Microsecond), (took / 2).Round(time.Microsecond))
	return true
}

// onPostgres says what the backend promises on a PostgreSQL.
func onPostgres(s *Server) Backend {
	return s.onTable(postgresName, []string{
		"one holder of a key at a time, also across a restart of the server",
		"fences that grow, which a transaction can check",
	}, "no WithFair", "a failover to an asynchronous standby can forget the newest leases")
}
