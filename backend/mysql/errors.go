package mysql

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-1795987d/onerun/guard/driver"
)

var (
	errReplica      = errors.New("the server is read-only, as a replica is")
	errNoAutocommit = errors.New("the session has autocommit off, by the DSN or as the default of the server: put autocommit=1 into the DSN")
	errPacket       = errors.New("the record needs a larger max_allowed_packet: twice its length, and some more")
	errNoDatabase   = errors.New("the session has no database: name one in the DSN, or by WithTable")
)

// Numbers of errors, which MySQL and MariaDB share, except for lockNowait.
const (
	duplicate   = 1062
	lockWait    = 1205 // also MariaDB's answer to NOWAIT
	deadlock    = 1213
	changed     = 1020 // since the snapshot of the transaction
	lockNowait  = 3572
	noSuchTable = 1146

	noStatementLog = 1665 // binlog_format is STATEMENT, and the isolation level does not allow that
)

// numbers finds the number in the text of an error, as drivers write it: "Error 1213 (40001): …".
// The type of an error depends on the driver, which is the user's choice.
var numbers = regexp.MustCompile(`(?i)\berror (\d{4}) \(\w{5}\): `)

// number returns the number of an error of the server, or 0.
func number(err error) int {
	if err == nil {
		return 0
	}
	found := numbers.FindStringSubmatch(err.Error())
	if found == nil {
		return 0
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// isRace reports whether the statement has failed, and has changed nothing, because of another
// transaction.
func isRace(err error) bool {
	switch number(err) {
	case lockWait, deadlock, changed, lockNowait, 3101: // a group has refused the transaction
		return true
	}
	return false
}

// kinds are the kinds of errors by their number.
var kinds = map[driver.StoreErrorKind][]int{
	driver.KindReadOnly:     {1290, 1792, 1836},
	driver.KindLimit:        {1040, 1203, 1226},
	driver.KindSettings:     {1046, 1049, 1054, noSuchTable, 1366, 1406, noStatementLog},
	driver.KindAuth:         {1044, 1045, 1142, 1143, 1227, 1370, 1410, 1698, 1820, 1862, 3118},
	driver.KindConnection:   {1053, 1152, 1153, 1158, 1159, 1160, 1161, 1317, 1927, 4031},
	driver.KindTimeout:      {lockWait, lockNowait, 1969, 3024},
	driver.KindOOM:          {1037, 1038, 1041},
	driver.KindNotPersisted: {1021, 1026, 1114},
	driver.KindLoading:      {1047},
	driver.KindUnsupported:  {1064, 1193, 1235, 1267, 1305, 1347},
}

// Explain implements sqlstore.Dialect.
func (d *dialect) Explain(_ driver.Op, err error) (driver.StoreErrorKind, error) {
	switch {
	case errors.Is(err, errReplica):
		return driver.KindReadOnly, err
	case errors.Is(err, errNoAutocommit), errors.Is(err, errNoDatabase), errors.Is(err, errPacket):
		return driver.KindSettings, err
	case errors.Is(err, errSeveral):
		return driver.KindUnsupported, err
	}
	n := number(err)
	if n == 0 {
		return clientKind(err), err
	}
	switch n {
	case noStatementLog:
		err = fmt.Errorf("set binlog_format to MIXED or ROW: %w", err)
	case 1049:
		err = fmt.Errorf("create the database, or name another one in the DSN: %w", err)
	case noSuchTable, 1054:
		err = fmt.Errorf("the table %q is missing or old: call Migrate, or apply Schema: %w", d.table, err)
	}
	for kind, numbers := range kinds {
		for _, k := range numbers {
			if k == n {
				return kind, err
			}
		}
	}
	return driver.KindOther, err
}

// clientKind returns the kind of an error of the driver go-sql-driver/mysql, or "".
func clientKind(err error) driver.StoreErrorKind {
	text := err.Error()
	switch {
	case strings.Contains(text, "packet for query is too large"):
		return driver.KindSettings
	case strings.Contains(text, "invalid connection"), strings.Contains(text, "busy buffer"), strings.Contains(text, "malformed packet"):
		return driver.KindConnection
	}
	return ""
}
