package main

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/inspect"
)

// psCommand is "onerun ps".
type psCommand struct{}

// Help implements kong.HelpProvider.
func (c *psCommand) Help() string {
	return `It shows processes that report what they hold (inspect.Inspector.Announce), and scans nothing.`
}

// Run shows what processes hold.
func (c *psCommand) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		all, err := i.Processes(ctx)
		if err != nil {
			return err
		}
		if all == nil {
			all = []inspect.Process{}
		}
		return g.print(all, func(w *terminal.Page) {
			if len(all) == 0 {
				w.Line("no process has reported in the last 30 seconds")
				return
			}
			w.Row("PROCESS", "KEY", "HELD FOR", "KIND", "FENCE")
			for _, p := range all {
				if len(p.Held) == 0 {
					w.Row(p.Label, "-")
				}
				for _, l := range p.Held {
					w.Row(p.Label, l.Key, span(max(p.Time.Sub(l.Since), 0)), orDash(l.Name), fmt.Sprint(l.Fence))
				}
				if p.More > 0 {
					w.Row(p.Label, fmt.Sprintf("and %d more", p.More))
				}
			}
		})
	})
}

// operationView is a change as --json prints it.
type operationView struct {
	inspect.Operation
	Bytes []byte  `json:"key_bytes,omitempty"` // of a key that is not UTF-8
	For   seconds `json:"for,omitempty"`
}

// what says what was changed.
func (o operationView) what() string {
	if o.For > 0 {
		return string(o.Action) + " for " + span(time.Duration(o.For))
	}
	return string(o.Action)
}

// logCommand is "onerun log".
type logCommand struct {
	Max int `short:"n" default:"20" help:"How many changes to show at most, up to 1000."`
}

// Run shows what operators have changed.
func (c *logCommand) Run(g *globals) error {
	if c.Max < 1 {
		return fmt.Errorf("--max: %d must be at least 1", c.Max)
	}
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		all, err := i.Operations(ctx, min(c.Max, 1000))
		if err != nil {
			return err
		}
		views := make([]operationView, len(all))
		for i, o := range all {
			views[i] = operationView{o, bytesOf(o.Key), seconds(o.For)}
		}
		return g.print(views, func(w *terminal.Page) {
			if len(all) == 0 {
				w.Line("nobody has changed anything")
				return
			}
			w.Row("TIME", "WHO", "WHAT", "KEY OR JOB", "HELD BY", "WHY")
			for _, o := range views {
				w.Row(instant(o.Time), o.Actor, o.what(), orDash(o.Key+o.Job), orDash(o.Holder), o.Reason)
			}
		})
	})
}
