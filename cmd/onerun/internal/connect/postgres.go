package connect

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/seed-1795987d/onerun/backend/postgres"
)

// connections is how many connections a command opens at most. Renewals need one at any time.
const connections = 4

// defaultTable is the name of the table in all databases.
const defaultTable = "onerun_leases"

// isPostgres reports whether a URL names a PostgreSQL.
func isPostgres(address string) bool {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme == "postgres" || scheme == "postgresql"
}

// errPostgresURL stands for each error of a parser, which could quote a password.
var errPostgresURL = errors.New("it is no URL of a PostgreSQL (in a user or password, escape special characters: / is %2F)")

// openPostgres sets the database and the Locker of s. The parameter "table" of the URL is the table
// of the leases.
func (s *Servers) openPostgres(c Config) error {
	switch {
	case len(c.URLs) > 1:
		return errors.New("--redis: a URL of PostgreSQL must be the only one: leases are in one store")
	case c.Backend != "" && c.Backend != Single:
		return errors.New("--backend: " + c.Backend + " is a backend on Redis, and the URL names PostgreSQL")
	case c.Plain != "":
		return errors.New("--plain: has no effect on PostgreSQL: no other library has its locks in our table")
	case !c.TLS.isZero():
		return errors.New("--tls-ca, --tls-cert and --tls-key are for Redis; in a URL of PostgreSQL, " +
			"use sslmode=verify-full, sslrootcert, sslcert and sslkey")
	}
	address, table, err := splitTable(c.URLs[0])
	if err != nil {
		return badURL(0, 1, errPostgresURL)
	}
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return badURL(0, 1, errPostgresURL)
	}
	s.Address = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
	opts := []postgres.Option{postgres.WithListener(listener(config)), postgres.WithAddr(s.Address)}
	if table != "" {
		opts = append(opts, postgres.WithTable(table))
	}
	s.TableName = cmp.Or(table, defaultTable)
	s.DB = stdlib.OpenDB(*config)
	s.DB.SetMaxOpenConns(connections)
	s.Table = postgres.New(s.DB, opts...)
	s.Locker, s.Unverified = s.Table, isUnverified(config)
	return s.Table.Describe().Err
}

// isUnverified reports whether a host of the configuration is reached without a check of whose it
// is: without TLS, or with sslmode=require, which checks no certificate. A loopback address and a
// socket need none.
func isUnverified(config *pgx.ConnConfig) bool {
	unverified := func(host string, c *tls.Config) bool {
		if strings.HasPrefix(host, "/") || isLocal(host) {
			return false
		}
		return c == nil || c.InsecureSkipVerify && c.VerifyPeerCertificate == nil
	}
	return unverified(config.Host, config.TLSConfig) || slices.ContainsFunc(config.Fallbacks, func(f *pgconn.FallbackConfig) bool {
		return unverified(f.Host, f.TLSConfig)
	})
}

// splitTable takes the parameter "table" out of a URL: pgx would send it to the server.
func splitTable(address string) (rest, table string, err error) {
	rest, query, found := strings.Cut(address, "?")
	if !found {
		return address, "", nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", "", err
	}
	if table = values.Get("table"); values.Has("table") && table == "" {
		return "", "", errPostgresURL
	}
	values.Del("table")
	return rest + "?" + strings.ReplaceAll(values.Encode(), "+", "%20"), table, nil
}

// listener returns what listens for releases, on a connection of its own.
func listener(config *pgx.ConnConfig) postgres.ListenFunc {
	return func(ctx context.Context, channel string, begun func(), notify func(payload string)) error {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		begun()
		for {
			n, err := conn.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			notify(n.Payload)
		}
	}
}

// closeDB closes the database, if there is one.
func closeDB(db *sql.DB) error {
	if db == nil {
		return nil
	}
	return db.Close()
}
