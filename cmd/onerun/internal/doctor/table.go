package doctor

import (
	"context"
	"crypto/rand"
	"strings"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/connect"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// examineTable examines a store that speaks SQL. Its address is not printed with its user and
// password.
func examineTable(ctx context.Context, of *connect.Servers, c Config) []*Server {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	name := of.Table.Describe().Name
	s := &Server{Addr: name + " " + of.Address, rights: map[string]error{}}
	if of.Unverified {
		use := "sslmode=verify-full, with sslrootcert"
		if name == mysqlName {
			use = "tls=true, with --tls-ca"
		}
		s.add("tls", Note, "anyone on the network could be the server: use %s for an authority of your own", use)
	}
	reach := map[string]func(context.Context, *connect.Servers) bool{
		postgresName: s.reachPostgres, mysqlName: s.reachMySQL, sqliteName: s.reachSQLite,
	}[name]
	if reach(ctx, of) {
		s.tryTable(ctx, of, name, c)
		for _, err := range of.Table.Warnings(ctx) {
			s.add("settings", Note, "%s", strings.TrimPrefix(err.Error(), name+": "))
		}
	}
	return []*Server{s}
}

// tryTable tries each feature on a key of its own.
func (s *Server) tryTable(ctx context.Context, of *connect.Servers, name string, c Config) {
	for _, f := range []struct {
		name  string
		state State // if it does not work
		try   func(ctx context.Context, l driver.Locker, key string) error
	}{
		{name, Problem, tryLease}, {"WithShared", Note, trySharing}, {"cron", Note, tryLedger},
	} {
		key := scratch + "-" + rand.Text()
		err := f.try(ctx, of.Locker, driver.JoinNamespace(c.Namespace, key))
		if s.rights[f.name] = err; err == nil {
			s.add("try "+f.name, OK, "works")
			continue
		}
		if strings.Contains(err.Error(), "call Migrate") { // so will all others
			s.add("table", Problem, `%s; "onerun migrate" creates the table`, reason(err))
			return
		}
		s.add("try "+f.name, f.state, "does not work: %s", reason(err))
	}
}

// onTable says what a backend on SQL or etcd promises, and what it does not, if it works.
func (s *Server) onTable(name string, promises []string, limits ...string) Backend {
	b := Backend{Name: name, Works: true, Promises: []string{}, Limits: []string{}}
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
		b.Promises = promises
		b.Limits = append(b.Limits, limits...)
	}
	return b
}
