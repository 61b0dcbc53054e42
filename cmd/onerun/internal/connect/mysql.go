package connect

import (
	"cmp"
	"crypto/tls"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"

	mysqldriver "github.com/go-sql-driver/mysql"

	"github.com/seed-1795987d/onerun/backend/mysql"
)

// mysqlScheme begins the URL of a MySQL or MariaDB.
const mysqlScheme = "mysql://"

func isMySQL(address string) bool {
	return strings.HasPrefix(address, mysqlScheme) || strings.HasPrefix(address, "mariadb://")
}

// The errors of a URL. They stand for those of parsers, which could quote a password.
var (
	errMySQLURL        = errors.New("it cannot be read" + useMySQL + " (in a user or password, escape special characters: / is %2F, # is %23)")
	errMySQLDSN        = errors.New("it has an address as in a DSN of Go, with tcp(…) or unix(…)" + useMySQL + ", or ?socket=PATH")
	errMySQLParameters = errors.New("its parameters cannot be used: they are table, socket, and those of the Go driver; " +
		"escape special characters: ; is %3B")
	errMySQLHost     = errors.New("it names neither a host nor a socket" + useMySQL + ", or ?socket=PATH")
	errMySQLTable    = errors.New("it has an empty parameter table: use table=NAME, or leave it out")
	errMySQLDatabase = errors.New("it names no database" + useMySQL)
)

const useMySQL = ": use mysql://user:password@host:3306/database"

// openMySQL sets the database and the Locker of s.
func (s *Servers) openMySQL(c Config) error {
	switch {
	case len(c.URLs) > 1:
		return errors.New("--redis: a URL of MySQL must be the only one: leases are in one store")
	case c.Backend != "" && c.Backend != Single:
		return errors.New("--backend: " + c.Backend + " is a backend on Redis, and the URL names MySQL")
	case c.Plain != "":
		return errors.New("--plain: has no effect on MySQL: no other library has its locks in our table")
	}
	config, table, err := parseMySQL(c.URLs[0])
	if err != nil {
		return badURL(0, 1, err)
	}
	if config.TLS == nil && !c.TLS.isZero() {
		host, _, _ := net.SplitHostPort(config.Addr)
		config.TLS = &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	}
	if err := c.TLS.apply(config.TLS); err != nil {
		return err
	}
	config.Logger = &mysqldriver.NopLogger{}
	connector, err := mysqldriver.NewConnector(config)
	if err != nil {
		return badURL(0, 1, errMySQLParameters)
	}
	s.Address, s.TableName = config.Addr+"/"+config.DBName, cmp.Or(table, defaultTable)
	opts := []mysql.Option{mysql.WithAddr(s.Address)}
	if table != "" {
		opts = append(opts, mysql.WithTable(table))
	}
	s.DB = sql.OpenDB(connector)
	s.DB.SetMaxOpenConns(connections)
	s.Table = mysql.New(s.DB, opts...)
	s.Locker, s.Unverified = s.Table, isUnverifiedMySQL(config)
	return s.Table.Describe().Err
}

// parseMySQL returns the configuration of a URL. The parameter "table" is the table of the leases,
// and "socket" a socket in the place of the host. The others are those of the driver.
func parseMySQL(address string) (config *mysqldriver.Config, table string, err error) {
	if strings.Contains(address, "@tcp(") || strings.Contains(address, "@unix(") {
		return nil, "", errMySQLDSN
	}
	u, err := url.Parse(address)
	if err != nil || strings.Contains(address, "#") {
		return nil, "", errMySQLURL
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, "", errMySQLParameters
	}
	table, socket := values.Get("table"), values.Get("socket")
	switch {
	case values.Has("table") && table == "":
		return nil, "", errMySQLTable
	case u.Host == "" && socket == "":
		return nil, "", errMySQLHost
	case strings.Trim(u.Path, "/") == "":
		return nil, "", errMySQLDatabase
	}
	values.Del("table")
	values.Del("socket")
	at := "tcp(" + u.Host + ")"
	if socket != "" {
		at = "unix(" + socket + ")"
	}
	if config, err = mysqldriver.ParseDSN(at + "/" + url.PathEscape(strings.Trim(u.Path, "/")) + "?" + values.Encode()); err != nil {
		return nil, "", errMySQLParameters
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	return config, table, nil
}

// isUnverifiedMySQL reports whether the host is reached without TLS, which checks whose it is.
func isUnverifiedMySQL(config *mysqldriver.Config) bool {
	host, _, _ := net.SplitHostPort(config.Addr)
	return config.Net != "unix" && !isLocal(host) && config.TLS == nil
}
