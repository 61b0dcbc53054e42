package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/seed-1795987d/onerun/cmd/onerun/internal/terminal"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/inspect"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// jobView is a job as --json prints it.
type jobView struct {
	guardcron.JobInfo
	Namespace string            `json:"namespace"`
	Paused    bool              `json:"paused"`
	State     string            `json:"state"` // paused, orphaned or active
	Last      *guardcron.Record `json:"last,omitempty"`
}

// The states of a job.
const (
	jobActive = "active"
	jobPaused = "paused"
	// jobOrphaned is that of a job whose ticks pass without a record.
	jobOrphaned = "no process has it"
)

// stateOf returns the state of a job at an instant. Some process records each tick of a job that a
// process has. The schedule may be in a time zone that is not known here, so two ticks must be
// missing, and a run that holds the key has not recorded its tick yet.
func (v *jobView) stateOf(now time.Time, runs bool) string {
	known := v.Seen.Add(time.Hour) // Seen is a whole hour
	if v.Last != nil && v.Last.Tick.After(known) {
		known = v.Last.Tick
	}
	schedule, err := cron.ParseStandard(v.Spec)
	switch {
	case v.Paused:
		return jobPaused
	case err != nil, runs, !now.After(schedule.Next(schedule.Next(known)).Add(recordedWithin)):
		return jobActive
	}
	return jobOrphaned
}

// recordedWithin is how long after its tick a short run is on record, with a jitter and a catch-up.
const recordedWithin = 10 * time.Minute

// jobs calls f with a Control of the jobs, as operator does.
func (g *globals) jobs(f func(ctx context.Context, i *inspect.Inspector, control *guardcron.Control) error) error {
	return g.operator(func(ctx context.Context, i *inspect.Inspector) error {
		control, err := guardcron.NewControl(i.Guard())
		if err != nil {
			return err
		}
		return f(ctx, i, control)
	})
}

// jobsCommand is "onerun jobs".
type jobsCommand struct{}

// Run lists the jobs.
func (c *jobsCommand) Run(g *globals) error {
	return g.jobs(func(ctx context.Context, i *inspect.Inspector, control *guardcron.Control) error {
		all, err := control.List(ctx)
		if err != nil {
			return err
		}
		views := []jobView{}
		for _, info := range all {
			v := jobView{JobInfo: info, Namespace: i.Namespace(), Paused: info.Paused}
			records, err := control.Records(ctx, info.Name, 1)
			if err != nil {
				return err
			}
			if len(records) > 0 {
				v.Last = &records[0]
			}
			k, err := i.Show(ctx, "cron:"+info.Name)
			if err != nil {
				return err
			}
			v.State = v.stateOf(time.Now(), k.State() == driver.KeyHeld)
			views = append(views, v)
		}
		return g.print(views, func(w *terminal.Page) {
			if len(views) == 0 {
				w.Line("no process has announced a job %s", inNamespace(i.Namespace()))
				if others := otherNamespaces(ctx, i); others != "" {
					w.Line("--namespace chooses another: %s", others)
				}
				return
			}
			w.Line("jobs %s:", inNamespace(i.Namespace()))
			w.Row("JOB", "SCHEDULE", "ZONE", "STATE", "LAST TICK", "OUTCOME", "BY")
			for _, v := range views {
				last := guardcron.Record{}
				if v.Last != nil {
					last = *v.Last
				}
				w.Row(v.Name, orDash(v.Spec), zoneOf(v.JobInfo), v.State, orDash(tickOf(last)), orDash(string(last.Result)), last.Who)
			}
		})
	})
}

// zoneOf returns the time zone of a job's ticks, or all of them if its processes differ.
func zoneOf(info guardcron.JobInfo) string {
	if len(info.Zones) > 0 {
		return "differ: " + strings.Join(info.Zones, ", ")
	}
	return orDash(info.Zone)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// tickOf says for what a record is.
func tickOf(r guardcron.Record) string {
	switch {
	case r.Result == "":
		return ""
	case r.Tick.IsZero():
		return "by hand"
	case r.Ticks > 0:
		return fmt.Sprintf("%s and %d more", instant(r.Tick), r.Ticks-1)
	default:
		return instant(r.Tick)
	}
}

// recordsCommand is "onerun records".
type recordsCommand struct {
	Job string `arg:"" help:"The name of the job."`
	Max int    `short:"n" default:"10" help:"How many records to show at most."`
}

// Run shows the newest ticks and runs of a job.
func (c *recordsCommand) Run(g *globals) error {
	if c.Max < 1 {
		return fmt.Errorf("--max: %d must be at least 1", c.Max)
	}
	return g.jobs(func(ctx context.Context, _ *inspect.Inspector, control *guardcron.Control) error {
		records, err := control.Records(ctx, c.Job, c.Max)
		if err != nil {
			return err
		}
		if records == nil {
			records = []guardcron.Record{}
		}
		return g.print(records, func(w *terminal.Page) {
			if len(records) == 0 {
				w.Line("there are no records of %s", c.Job)
				return
			}
			w.Row("TICK", "OUTCOME", "BY", "BEGAN", "TOOK", "WHY")
			for _, r := range records {
				took := "-"
				if !r.End.IsZero() && !r.Start.IsZero() {
					took = span(r.End.Sub(r.Start))
				}
				w.Row(tickOf(r), string(r.Result), orDash(r.Who), orDash(instant(r.Start)), took, r.Reason)
			}
		})
	})
}

// jobNames are the jobs that a command changes.
type jobNames struct {
	Jobs []string `arg:"" name:"job" help:"Names of jobs. A * stands for any text: quote it."`
}

// expand returns the names of the jobs, by those that processes have announced.
func (n jobNames) expand(ctx context.Context, control *guardcron.Control) (names []string, err error) {
	known, err := control.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, pattern := range n.Jobs {
		exact := slices.ContainsFunc(known, func(info guardcron.JobInfo) bool { return info.Name == pattern })
		found := false
		for _, info := range known {
			if info.Name != pattern && (exact || !matches(pattern, info.Name)) {
				continue
			}
			found = true
			if !slices.Contains(names, info.Name) {
				names = append(names, info.Name)
			}
		}
		if !found {
			return nil, fmt.Errorf("no process has announced a job %q; see \"onerun jobs\"", pattern)
		}
	}
	return names, nil
}

// matches reports whether the name is the pattern, in which each * stands for any text. All other
// characters, such as the / and the [ of path.Match, stand for themselves.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	last := len(parts) - 1
	rest, ok := strings.CutPrefix(name, parts[0])
	if last == 0 {
		return ok && rest == ""
	}
	for _, part := range parts[1:last] {
		if ok {
			_, rest, ok = strings.Cut(rest, part)
		}
	}
	return ok && strings.HasSuffix(rest, parts[last])
}

// each changes the jobs one after the other, and says so.
func (n jobNames) each(g *globals, done string, change func(ctx context.Context, control *guardcron.Control, job string) error) error {
	return g.jobs(func(ctx context.Context, _ *inspect.Inspector, control *guardcron.Control) error {
		names, err := n.expand(ctx, control)
		if err != nil {
			return err
		}
		var changed []string
		for _, name := range names {
			if err = change(ctx, control, name); err != nil {
				break
			}
			changed = append(changed, name)
		}
		if len(changed) > 0 {
			text := done + ": " + strings.Join(changed, ", ")
			shown := g.print(map[string]any{"jobs": changed, "text": text}, func(w *terminal.Page) { w.Line("%s", text) })
			err = errors.Join(err, shown)
		}
		return err
	})
}

// pauseCommand is "onerun pause".
type pauseCommand struct {
	by
	jobNames

	For time.Duration `placeholder:"2h" help:"For how long. Default: until \"onerun resume\"."`
}

// Run pauses jobs.
func (c *pauseCommand) Run(g *globals) error {
	done := "paused"
	switch {
	case c.For < 0:
		return fmt.Errorf("--for: %s must be positive", c.For)
	case c.For > 0:
		done += " for " + span(c.For)
	}
	return c.each(g, done, func(ctx context.Context, control *guardcron.Control, job string) error {
		return control.Pause(ctx, job, c.For, c.by.by())
	})
}

// resumeCommand is "onerun resume".
type resumeCommand struct {
	by
	jobNames
}

// Run ends the pauses of jobs.
func (c *resumeCommand) Run(g *globals) error {
	return c.each(g, "resumed", func(ctx context.Context, control *guardcron.Control, job string) error {
		return control.Resume(ctx, job, c.by.by())
	})
}

// triggerCommand is "onerun trigger".
type triggerCommand struct {
	by
	jobNames
}

// Help implements kong.HelpProvider.
func (c *triggerCommand) Help() string {
	return `One of the processes that have the job runs it, once and for no tick, also if it is paused. See
"onerun records" for how it went.`
}

// Run has jobs run now.
func (c *triggerCommand) Run(g *globals) error {
	return c.each(g, "triggered", func(ctx context.Context, control *guardcron.Control, job string) error {
		return control.Trigger(ctx, job, c.by.by())
	})
}
