package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard/driver"
)

const postgresName = "postgres"

// oldestPostgres is the oldest version that the backend supports, as server_version_num has it.
const oldestPostgres = 120000

// examinePostgres examines a PostgreSQL. Its address is not printed with its user and password.
func examinePostgres(ctx context.Context, of *connect.Servers, c Config) []*Server {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	s := &Server{Addr: postgresName, rights: map[string]error{}}
	if of.Unverified {
		s.add("tls", Note, "anyone on the network could be the server: use sslmode=verify-full, with sslrootcert for an authority of your own")
	}
	if s.reachPostgres(ctx, of) {
		s.tryPostgres(ctx, of, c)
		for _, err := range of.Postgres.Warnings(ctx) {
			s.add("settings", Note, "%s", strings.TrimPrefix(err.Error(), "postgres: "))
		}
	}
	return []*Server{s}
}

// reachPostgres checks whether the server answers, its version, its role and its clock.
func (s *Server) reachPostgres(ctx context.Context, of *connect.Servers) bool {
	const query = `SELECT current_database(), current_setting('server_version'),
		current_setting('server_version_num')::int, pg_is_in_recovery(), clock_timestamp()`
	var (
		database, version string
		number            int
		standby           bool
		clock             time.Time
	)
	err := of.DB.PingContext(ctx) // it connects, so that the query below takes one round trip
	start := time.Now()
	if err == nil {
		err = of.DB.QueryRowContext(ctx, query).Scan(&database, &version, &number, &standby, &clock)
	}
	took := time.Since(start)
	if err != nil {
		s.add("reach", Problem, "%s", whyUnreachable(err))
		return false
	}
	s.Addr += " " + database
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

// tryPostgres tries each feature on a key of its own.
func (s *Server) tryPostgres(ctx context.Context, of *connect.Servers, c Config) {
	for _, f := range []struct {
		name  string
		state State // if it does not work
		try   func(ctx context.Context, l driver.Locker, key string) error
	}{
		{postgresName, Problem, tryLease}, {"WithShared", Note, trySharing}, {"cron", Note, tryLedger},
	} {
		key := scratch + "-" + rand.Text()
		err := f.try(ctx, of.Locker, driver.JoinNamespace(c.Namespace, key))
		if s.rights[f.name] = err; err == nil {
			s.add("try "+f.name, OK, "works")
			continue
		}
		text := fmt.Sprintf("does not work: %s", reason(err))
		if strings.Contains(text, "42P01") {
			text += `; "onerun migrate" creates the table`
		}
		s.add("try "+f.name, f.state, "%s", text)
	}
}

// onPostgres says what the backend promises on a PostgreSQL.
func onPostgres(s *Server) Backend {
	b := Backend{Name: postgresName, Works: true, Promises: []string{}, Limits: []string{}}
	for _, check := range s.Checks {
		switch check.State {
		case Problem:
			b.Works = false
			b.Limits = append(b.Limits, check.Name+": "+check.Text)
		case Note:
			b.Limits = append(b.Limits, check.Name+": "+check.Text)
		case OK, Unknown:
		}
	}
	if b.Works {
		b.Promises = []string{
			"one holder of a key at a time, also across a restart of the server",
			"fences that grow, which a transaction can check",
		}
		b.Limits = append(b.Limits, "no WithFair", "a failover to an asynchronous standby can forget the newest leases")
	}
	return b
}
