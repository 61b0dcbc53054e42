package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
)

// showCommand is "onerun show".
type showCommand struct{ oneKey }

// Help implements kong.HelpProvider.
func (c *showCommand) Help() string {
	return `If the key is free, it looks for the key of a job of that name, and for the key under other
namespaces, which scans the servers for a second at most. See "onerun key" for the keys of requests
and tasks.`
}

// Run shows a key.
func (c *showCommand) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		k, err := i.Show(ctx, c.Key)
		if err != nil {
			return err
		}
		v := viewOf(k)
		changed, err := i.LastOperation(ctx, c.Key)
		if err != nil {
			return err
		}
		if changed != nil {
			v.Changed = &operationView{*changed, bytesOf(changed.Key), seconds(changed.For)}
		}
		if v.State == string(driver.KeyFree) {
			v.Elsewhere = elsewhere(ctx, i, c.Key)
			v.Related = related(ctx, i, c.Key)
		}
		return g.print(v, v.print)
	})
}

// lsCommand is "onerun ls".
type lsCommand struct {
	Prefix string `arg:"" optional:"" help:"Only keys that begin with this."`
	Max    int    `short:"n" default:"1000" help:"How many keys to list at most."`
}

// Help implements kong.HelpProvider.
func (c *lsCommand) Help() string {
	return `It scans the servers. Use "onerun show" if you know the key, and do not call ls by a timer.`
}

// pageSize is how many keys are asked for at a time.
const pageSize = 500

// Run lists keys.
func (c *lsCommand) Run(g *globals) error {
	if c.Max < 1 {
		return fmt.Errorf("--max: %d must be at least 1", c.Max)
	}
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		views := []keyView{}
		more := true
		for cursor := ""; more && len(views) < c.Max; {
			keys, next, err := i.List(ctx, c.Prefix, cursor, min(pageSize, c.Max))
			if err != nil {
				return err
			}
			for _, k := range keys {
				views = append(views, viewOf(k))
			}
			cursor, more = next, next != ""
		}
		if len(views) > c.Max {
			views, more = views[:c.Max], true
		}
		return g.print(map[string]any{"keys": views, "more": more}, func(w *terminal.Page) {
			if len(views) == 0 {
				w.Line("no keys are held, kept or done")
				return
			}
			w.Row("KEY", "STATE", "AGE", "LEFT", "BY")
			for _, v := range views {
				switch {
				case v.Done != nil:
					w.Row(v.Key, v.State, v.doneAge(), span(time.Duration(v.Done.Left)), v.Done.who())
				case len(v.Holders) > 0:
					who := v.Holders[0].who()
					if n := len(v.Holders) - 1; n > 0 {
						who += fmt.Sprintf(", and %d more", n)
					}
					w.Row(v.Key, v.State, v.age(v.Holders[0]), v.Holders[0].left(), who)
				}
			}
			if more {
				w.Line("there are more")
			}
		})
	})
}

// breakCommand is "onerun break".
type breakCommand struct {
	by
	oneKey

	ID  string `arg:"" optional:"" help:"The ID of the holder, if there are several: see \"onerun show\"."`
	Now bool   `help:"Free the key at once. If the holder still runs, two run until its next renewal."`
}

// Help implements kong.HelpProvider.
func (c *breakCommand) Help() string {
	return `The holder learns of it at its next renewal, and its context ends. The key stays taken until the
lease would have ended, so that no two runs overlap. --now is for a holder that is dead for
certain, and for what "onerun hold" and an earlier break keep busy.

Exit codes: 0 if the lease was broken, 1 if there was none, 125 for errors.`
}

// Run breaks a lease.
func (c *breakCommand) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		k, err := i.Show(ctx, c.Key)
		if err != nil {
			return err
		}
		v := viewOf(k)
		h, err := c.holder(v)
		if err != nil {
			return err
		}
		broken, nothing := false, "nobody holds "+c.Key
		if h == nil {
			nothing += hintsOf(elsewhere(ctx, i, c.Key))
		} else {
			breaks := i.Break
			if c.Now {
				breaks = i.BreakNow
			}
			if broken, err = breaks(ctx, c.Key, h.ID, c.by.by()); err != nil {
				return err
			}
		}
		return g.changed(broken, c.Key, func() string {
			if h.Kept {
				return fmt.Sprintf("broken: %s is free; it was kept: %s", c.Key, h.who())
			}
			text := fmt.Sprintf("broken: %s was held by %s", c.Key, h.who())
			if age := v.age(*h); age != "" {
				text += " for " + age
			}
			switch {
			case h.Foreign:
				text += "; that library learns nothing of it"
			case !c.Now:
				text += fmt.Sprintf("; the key is free in %s", h.left())
			default:
				text += "; its run may go on until its next renewal"
			}
			return text
		}, nothing)
	})
}

// holder returns the holder to break, or nil if there is none.
func (c *breakCommand) holder(v keyView) (*holderView, error) {
	var found []*holderView
	var ids []string
	for i := range v.Holders {
		h := &v.Holders[i]
		if (c.ID == "" || h.ID == c.ID) && (c.Now || !h.Kept) {
			found = append(found, h)
			ids = append(ids, h.ID)
		}
	}
	switch {
	case len(found) > 1:
		return nil, fmt.Errorf("%d hold %q: name the ID of one of them: %s", len(found), c.Key, strings.Join(ids, ", "))
	case len(found) == 0:
		return nil, nil
	case found[0].Foreign && !c.Now:
		return nil, fmt.Errorf("%q is held by another library, which can only be broken with --now", c.Key)
	}
	return found[0], nil
}

// changed says whether something was changed, and returns the exit code.
func (g *globals) changed(changed bool, target string, done func() string, nothing string) error {
	text := nothing
	if changed {
		text = done()
	}
	err := g.print(map[string]any{"target": target, "changed": changed, "text": text}, func(w *terminal.Page) { w.Line("%s", text) })
	if err == nil && !changed {
		return exit(exitNothing)
	}
	return err
}

// forgetCommand is "onerun forget".
type forgetCommand struct {
	by
	oneKey
}

// Help implements kong.HelpProvider.
func (c *forgetCommand) Help() string {
	return `It deletes the done marker of --once, or of guard.WithOnce, and its record. The work runs again when
it is asked for.

Exit codes: 0 if there was a marker, 1 if there was none, 125 for errors.`
}

// Run removes a done marker.
func (c *forgetCommand) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		forgotten, err := i.Forget(ctx, c.Key, c.by.by())
		if err != nil {
			return err
		}
		nothing := ""
		if !forgotten {
			nothing = c.Key + " is not done" + hintsOf(elsewhere(ctx, i, c.Key))
		}
		return g.changed(forgotten, c.Key, func() string { return "forgotten: " + c.Key + " can run again" }, nothing)
	})
}

// holdCommand is "onerun hold".
type holdCommand struct {
	by
	oneKey

	For  time.Duration `required:"" placeholder:"2h" help:"How long the key stays busy."`
	Wait wait          `default:"0s" help:"How long to wait for the present holder; \"forever\" has no end."`
}

// Help implements kong.HelpProvider.
func (c *holdCommand) Help() string {
	return `Nothing runs under the key until the time is over. "onerun break --now KEY" ends it earlier.

Exit codes: 0 if the key is held, 75 if it is busy, 125 for errors.`
}

// Run keeps a key busy.
func (c *holdCommand) Run(g *globals) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		id, err := i.Hold(ctx, c.Key, c.For, c.by.by(), guard.WithWait(time.Duration(c.Wait)))
		if errors.Is(err, guard.ErrBusy) {
			_ = g.changed(false, c.Key, nil, err.Error())
			return exit(exitBusy)
		}
		if err != nil {
			return err
		}
		return g.changed(true, c.Key, func() string { return fmt.Sprintf("held: %s for %s, as %s", c.Key, span(c.For), id) }, "")
	})
}
