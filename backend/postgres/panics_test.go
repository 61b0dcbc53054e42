package postgres_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A rogue is a driver of database/sql that calls fault in one of its functions.
type rogue struct {
	in    string
	fault func()
}

func (r rogue) fails(in string) {
	if r.in == in {
		r.fault()
	}
}

func (r rogue) Connect(context.Context) (sqldriver.Conn, error) { r.fails("Connect"); return r, nil }
func (r rogue) Driver() sqldriver.Driver                        { return nil }
func (r rogue) Prepare(string) (sqldriver.Stmt, error)          { return nil, io.ErrUnexpectedEOF }
func (r rogue) Begin() (sqldriver.Tx, error)                    { return nil, io.ErrUnexpectedEOF }
func (r rogue) Close() error                                    { return nil }

func (r rogue) QueryContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Rows, error) {
	r.fails("Query")
	return rogueRows{r}, nil
}

func (r rogue) ExecContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Result, error) {
	r.fails("Query")
	return sqldriver.RowsAffected(0), nil
}

type rogueRows struct{ rogue }

func (r rogueRows) Columns() []string            { return []string{"one"} }
func (r rogueRows) Next([]sqldriver.Value) error { r.fails("Next"); return io.EOF }

var rogueCalls = map[string]func(ctx context.Context, l *postgres.Locker) error{
	"acquire": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.TryAcquire(ctx, driver.Claim{Key: "k", ID: "i", TTL: time.Second})
		return err
	},
	"acquire shared": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.TryAcquire(ctx, driver.Claim{Key: "k", ID: "i", TTL: time.Second, MaxHolders: 3})
		return err
	},
	"renew": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.Renew(ctx, driver.Claim{Key: "k", ID: "i", TTL: time.Second})
		return err
	},
	"renew batch": func(ctx context.Context, l *postgres.Locker) (err error) {
		claims := []driver.Claim{{Key: "a", ID: "a", TTL: time.Second}, {Key: "b", ID: "b", TTL: time.Second, MaxHolders: 2}}
		driver.Await(ctx, l, driver.OpRenew, claims, driver.After{}, func(_ int, _ driver.Answer, e error) { err = e })
		return err
	},
	"release": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.Release(ctx, driver.Claim{Key: "k", ID: "i", TTL: time.Second}, driver.After{Keep: time.Hour, Done: true})
		return err
	},
	"append": func(ctx context.Context, l *postgres.Locker) error {
		return l.Append(ctx, "log", driver.Entry{At: 1, Record: []byte("r")}, 1)
	},
	"entries": func(ctx context.Context, l *postgres.Locker) error {
		_, err := driver.Entries(ctx, l, "log", 1)
		return err
	},
	"raise": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.Raise(ctx, "log", "counter", 1)
		return err
	},
	"show": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.Show(ctx, "k")
		return err
	},
	"keys": func(ctx context.Context, l *postgres.Locker) error {
		_, _, err := l.Keys(ctx, "", "", 1)
		return err
	},
	"clean": func(ctx context.Context, l *postgres.Locker) error {
		_, err := l.Clean(ctx, 1)
		return err
	},
}

// faults are what foreign code does instead of returning, and what the error then says.
var faults = map[string]func(){"it panicked: boom": func() { panic("boom") }, "ended its goroutine": runtime.Goexit}

func TestLocker_containsADriverThatPanicsOrEndsItsGoroutine(t *testing.T) {
	for text, fault := range faults {
		for _, in := range []string{"Connect", "Query", "Next"} {
			for name, call := range rogueCalls {
				if in == "Next" && (name == "append" || name == "clean") {
					continue // they read no rows
				}
				t.Run(text+" in "+in+" of "+name, func(t *testing.T) {
					db := sql.OpenDB(rogue{in, fault})
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
					defer cancel()
					require.ErrorContains(t, call(ctx, postgres.New(db)), text, "when it finds the table")
					require.ErrorContains(t, call(ctx, postgres.New(db, postgres.WithTable("public.t"))), text)
				})
			}
		}
	}
}

func TestSubscribe_containsAListenerAndADriverThatPanicOrEndTheirGoroutines(t *testing.T) {
	for text, fault := range faults {
		t.Run(text, func(t *testing.T) {
			var listened atomic.Int32
			listen := func(_ context.Context, _ string, begun func(), _ func(string)) error {
				if listened.Add(1)%2 == 1 {
					begun() // the keys are marked, which the driver does not survive
					time.Sleep(50 * time.Millisecond)
				}
				fault()
				return nil
			}
			l := postgres.New(sql.OpenDB(rogue{"Query", fault}), postgres.WithListener(listen))
			stop := l.Subscribe("k", "", func(time.Duration) {})
			require.Eventually(t, func() bool { return listened.Load() >= 2 }, 20*time.Second, 10*time.Millisecond, "it is called again")
			stop()
		})
	}
}
