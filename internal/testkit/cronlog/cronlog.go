// Package cronlog writes into a store what processes with cron jobs leave there, so that a test of
// what shows it needs no nights.
package cronlog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// keep is how many entries a log keeps.
const keep = 2000

// Announce writes that processes have a job, with the schedule spec.
func Announce(ctx context.Context, ledger driver.Ledger, job, spec string) error {
	info := guardcron.JobInfo{Name: job, Spec: spec, Zone: "UTC", Seen: time.Now().UTC().Truncate(time.Hour)}
	return Append(ctx, ledger, "cron-jobs", info.Seen, info)
}

// Record writes down a tick of a job.
func Record(ctx context.Context, ledger driver.Ledger, job string, r guardcron.Record) error {
	return Append(ctx, ledger, "cron:"+job, r.Tick, r)
}

// Append adds an entry to a log.
func Append(ctx context.Context, ledger driver.Ledger, log string, at time.Time, record any) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	return ledger.Append(ctx, log, driver.Entry{At: at.UnixMilli(), Record: text}, keep)
}
