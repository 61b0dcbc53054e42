package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// migrateCommand is "onerun migrate".
type migrateCommand struct{}

// Help implements kong.HelpProvider.
func (c *migrateCommand) Help() string {
	return `It changes nothing if the table exists. Programs can create it as well, by Migrate or Schema of
packages backend/postgres, backend/mysql and backend/sqlite.`
}

// Run creates the table.
func (c *migrateCommand) Run(g *globals) error {
	servers, err := g.connect(true)
	if err != nil {
		return err
	}
	defer func() { _ = servers.Close() }()
	if servers.Table == nil {
		return errors.New("migrate: Redis and etcd need no tables; it is for a store such as postgres://…, mysql://… or sqlite:FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	existed := servers.HasTable(ctx)
	if err := servers.Table.Migrate(ctx); err != nil {
		return err
	}
	return g.print(map[string]any{"migrated": true, "created": !existed}, func(w *terminal.Page) {
		if existed {
			w.Line("nothing to do: %s has %s", servers.Address, servers.TableName)
			return
		}
		w.Line("created %s in %s", servers.TableName, servers.Address)
	})
}
