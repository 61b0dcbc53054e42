package postgres_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/lib/pq"

	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/postgrestest"
	"github.com/seed-1795987d/onerun/internal/testkit/sqltest"
)

// listenToByPQ is listenTo with lib/pq.
func listenToByPQ(dsn string) postgres.ListenFunc {
	return func(ctx context.Context, channel string, begun func(), notify func(payload string)) error {
		lost := make(chan struct{}, 1)
		l := pq.NewListener(dsn, 0, 0, func(e pq.ListenerEventType, _ error) {
			if e == pq.ListenerEventDisconnected {
				lost <- struct{}{}
			}
		})
		defer l.Close()
		if err := l.Listen(channel); err != nil {
			return err
		}
		begun()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-lost:
				return nil
			case n := <-l.Notify:
				if n != nil {
					notify(n.Extra)
				}
			}
		}
	}
}

// The backend needs nothing of pgx.
func TestWeekly_suiteOnLibPQ(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	server := postgrestest.Start(t)
	guardtest.Run(t, suite(t, byPQ(server, server.DSN())))
}

func byPQ(server *postgrestest.Server, dsn string) *sqltest.Store {
	s := store(server, "", postgres.WithListener(listenToByPQ(dsn)))
	s.Open = func(sqltest.DialFunc) (*sql.DB, error) { return sql.Open("postgres", dsn) }
	return s
}
