package guardcron

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/middleware/internal/ticks"
)

// Processes in two time zones have different ticks for one spec, and each runs its own. None of
// them can know which zone is meant. So each announces its ticks, and the first that finds others
// reports it.
const (
	// announcedFor is the least time for which an announcement counts.
	announcedFor = 24 * time.Hour
	// maxZones is how many announcements of a job are compared.
	maxZones = 16
)

// zonesName is the log of the announcements of a job.
func zonesName(job string) string { return ledgerName(job) + "@zones" }

// announcement returns what this process announces of the job.
func (b *job) announcement(now time.Time) announcement {
	seen := now.Truncate(time.Hour)
	a := announcement{
		JobInfo: JobInfo{Name: b.name, Spec: b.spec, Seen: seen, Zone: ticks.ZoneName(b.location)},
		Shape:   ticks.Shape(b.schedule), Ticks: ticks.Instants(b.schedule, b.location),
		Until: seen.Add(max(announcedFor, 4*b.longestPeriod)),
	}
	if a.Shape == "" {
		a.Zone = "" // it says nothing of the ticks
	}
	if b.local { // the name of a tick has that of the zone
		a.Ticks += " " + b.location.String()
	}
	return a
}

// otherTicks reports whether the two have the same spec, and other ticks.
func (a announcement) otherTicks(o announcement) bool {
	return a.Shape != "" && a.Shape == o.Shape && a.Ticks != o.Ticks
}

// compareZones announces the ticks, and reports, once in a process, that others have other ones.
func (b *job) compareZones(own announcement, line driver.Entry, now time.Time) error {
	if own.Shape == "" {
		return nil
	}
	if err := b.ledger.Append(b.jobs.ctx, zonesName(b.name), line, maxZones); err != nil {
		return err
	}
	entries, err := driver.Entries(b.jobs.ctx, b.ledger, zonesName(b.name), maxZones)
	if err != nil {
		return err
	}
	for _, e := range entries {
		var other announcement
		if json.Unmarshal(e.Record, &other) == nil && other.Until.After(now) && own.otherTicks(other) {
			b.jobs.warnOfZones.Do(func() { b.reportZones(own, other) })
			return nil
		}
	}
	return nil
}

func (b *job) reportZones(own, other announcement) {
	b.jobs.guard.Adapter().Report(context.WithoutCancel(b.jobs.ctx), guard.Outcome{
		Adapter: "cron", Result: misconfigured, Name: b.kind,
		Refused: fmt.Errorf("guardcron: job %q: its ticks are in the time zone %s here, and a process seen at %s has them in %s: "+
			"each zone runs its own; set the zone of all processes (cron.WithLocation, CRON_TZ)",
			b.name, own.Zone, other.Seen.Format(time.RFC3339), other.Zone),
	}, b.lease...)
}

// misconfigured is the result of a warning. It is no outcome of a tick.
const misconfigured = "misconfigured"

// announcementIsDue reports whether the job was not announced yet, or is to be announced again.
func (b *job) announcementIsDue() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.announceAt.IsZero()
}
