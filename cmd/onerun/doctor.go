package main

import (
	"context"
	"os"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/doctor"
	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
)

// doctorCommand is "onerun doctor".
type doctorCommand struct {
	Timeout time.Duration `default:"10s" help:"How long each server may take for all checks."`
}

// Help implements kong.HelpProvider.
func (d *doctorCommand) Help() string {
	return `It tries what each backend does, on keys of its own that begin with onerun-doctor. With
--namespace, they begin with the namespace. Two small keys of a log named onerun-doctor stay.

Exit codes: 0 if there is no problem, 1 if there is one, 125 for bad flags.`
}

// Run runs the checks, and prints the result.
func (d *doctorCommand) Run(g *globals) error {
	servers, err := g.open()
	if err != nil {
		return err
	}
	defer func() { _ = servers.Close() }()
	report := doctor.Examine(context.Background(), servers, doctor.Config{
		Backend: g.Backend, Namespace: g.Namespace, Timeout: d.Timeout, Plain: servers.Plain,
	})
	if g.JSON {
		err = terminal.JSON(os.Stdout, "  ", report)
	} else {
		err = report.Print(os.Stdout)
	}
	if err == nil && report.Problems > 0 {
		err = exit(exitProblem)
	}
	return err
}
