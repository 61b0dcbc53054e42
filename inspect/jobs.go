package inspect

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// jobs returns the control of the jobs of guardcron.
func (i *Inspector) jobs() (*guardcron.Control, error) {
	if i.control == nil {
		return nil, &guard.SettingError{Setting: "guard", Reason: "its backend keeps no jobs (driver.Ledger)"}
	}
	return i.control, nil
}

// Jobs returns the jobs that processes have announced, see guardcron.Control.List.
func (i *Inspector) Jobs(ctx context.Context) ([]guardcron.JobInfo, error) {
	c, err := i.jobs()
	if err != nil {
		return nil, err
	}
	return c.List(ctx)
}

// Records returns the newest runs and ticks of a job, see guardcron.Control.Records.
func (i *Inspector) Records(ctx context.Context, job string, n int) ([]guardcron.Record, error) {
	c, err := i.jobs()
	if err != nil {
		return nil, err
	}
	return c.Records(ctx, job, n)
}

// RecordsOf is Records of several jobs, in few calls: see guardcron.Control.RecordsOf.
func (i *Inspector) RecordsOf(ctx context.Context, jobs []string, n int) ([][]guardcron.Record, error) {
	c, err := i.jobs()
	if err != nil {
		return nil, err
	}
	return c.RecordsOf(ctx, jobs, n)
}

// PauseJob keeps all processes from starting the job for a tick, for d, or until ResumeJob if d is
// 0. See guardcron.Control.Pause.
func (i *Inspector) PauseJob(ctx context.Context, job string, d time.Duration, by By) error {
	return i.changeJob(ctx, Operation{Action: ActionPause, Job: job, For: d}, by, func(c *guardcron.Control) error {
		if d == 0 {
			return c.Pause(ctx, job)
		}
		return c.PauseFor(ctx, job, d)
	})
}

// ResumeJob ends a pause.
func (i *Inspector) ResumeJob(ctx context.Context, job string, by By) error {
	return i.changeJob(ctx, Operation{Action: ActionResume, Job: job}, by, func(c *guardcron.Control) error {
		return c.Resume(ctx, job)
	})
}

// TriggerJob has the job run once, in one of the processes that have it. See
// guardcron.Control.Trigger.
func (i *Inspector) TriggerJob(ctx context.Context, job string, by By) error {
	return i.changeJob(ctx, Operation{Action: ActionTrigger, Job: job}, by, func(c *guardcron.Control) error {
		return c.Trigger(ctx, job)
	})
}

func (i *Inspector) changeJob(ctx context.Context, o Operation, by By, do func(*guardcron.Control) error) error {
	c, err := i.jobs()
	if err != nil {
		return err
	}
	_, err = i.change(ctx, o, by, func() (bool, error) { return true, do(c) })
	return err
}
