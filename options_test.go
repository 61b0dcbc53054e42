package onerun_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/backend/mysql"
	"github.com/seed-1795987d/onerun/backend/postgres"
	"github.com/seed-1795987d/onerun/backend/redlock"
	"github.com/seed-1795987d/onerun/backend/reentrant"
	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	"github.com/seed-1795987d/onerun/inspect/web"
	"github.com/seed-1795987d/onerun/logging"
	guardasynq "github.com/seed-1795987d/onerun/middleware/asynq"
	guardscheduler "github.com/seed-1795987d/onerun/middleware/asynq/scheduler"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
	guardgocron "github.com/seed-1795987d/onerun/middleware/gocron"
	guardhttp "github.com/seed-1795987d/onerun/middleware/http"
	"github.com/seed-1795987d/onerun/middleware/idempotency"
	"github.com/seed-1795987d/onerun/tracing"
)

// A nil option, such as one of a function that returns none, is an error with a name. It is no
// panic.
func TestOptions_nilIsASettingErrorInEveryPackage(t *testing.T) {
	t.Parallel()
	g, err := guard.New(memory.New(), guard.WithNamespace("test"))
	require.NoError(t, err)
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { _ = rdb.Close() })
	i, err := inspect.New(g)
	require.NoError(t, err)
	ofStore := func(store guard.Locker) error {
		_, err := guard.New(store)
		return err
	}
	nodes := []driver.Locker{memory.New(), memory.New(), memory.New()}
	for name, got := range map[string]func() error{
		"guard.New":     func() error { _, err := guard.New(memory.New(), nil); return err },
		"guard.Do":      func() error { return g.Do(t.Context(), "k", nothing, nil) },
		"guard.Acquire": func() error { _, err := g.Acquire(t.Context(), "k", nil); return err },
		"guard.DoAll":   func() error { return g.DoAll(t.Context(), []string{"k", "l"}, nothing, nil) },
		"guard.Check":   func() error { return g.Check("k", nil) },
		"guard.Wrap":    func() error { _, err := g.Wrap("k", nothing, nil); return err },
		"single":        func() error { return ofStore(single.New(rdb, nil)) },
		"reentrant":     func() error { return ofStore(reentrant.New(rdb, nil)) },
		"redlock":       func() error { return ofStore(redlock.New(nodes, nil)) },
		"mysql":         func() error { return ofStore(mysql.New(new(sql.DB), nil)) },
		"postgres":      func() error { return ofStore(postgres.New(new(sql.DB), nil)) },
		"tracing":       func() error { _, err := tracing.New(nil); return err },
		"logging":       func() error { _, err := logging.New(slog.Default(), nil); return err },
		"http": func() error {
			_, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), nil)
			return err
		},
		"http, of a lease": func() error {
			_, err := guardhttp.New(g, guardhttp.IdempotencyKey, idempotency.WithGlobalKeys(), idempotency.WithLease(nil))
			return err
		},
		"asynq": func() error { _, err := guardasynq.New(g, nil, nil); return err },
		"asynq, of a lease": func() error {
			_, err := guardasynq.New(g, guardasynq.FromType(), guardasynq.WithLease(nil), guardasynq.WithBusy(guardasynq.Fail))
			return err
		},
		"scheduler":       func() error { _, err := guardscheduler.New(g, nil, nil, nil); return err },
		"cron":            func() error { _, err := guardcron.New(g, cron.New(), nil); return err },
		"gocron, Elector": func() error { _, err := guardgocron.NewElector(g, "leader", nil); return err },
		"gocron, Locker": func() error {
			_, err := guardgocron.NewLocker[interface{ Unlock(context.Context) error }](g, nil)
			return err
		},
		"inspect, Hold": func() error {
			_, err := i.Hold(t.Context(), "k", 1, inspect.By{Actor: "alice", Reason: "test"}, nil)
			return err
		},
		"page": func() error { _, err := web.New(i, nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			require.NotPanics(t, func() { err = got() })
			var refused *guard.SettingError
			require.ErrorAs(t, err, &refused)
			require.Regexp(t, `Option(\(nil\))?: must not be nil`, err.Error())
		})
	}
}
