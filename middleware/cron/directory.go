package guardcron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A JobInfo is what processes have announced of a job.
type JobInfo struct {
	Name string `json:"name"`
	Spec string `json:"spec,omitempty"` // "" if it was added by Schedule
	// Zone is the time zone of the job's ticks, such as "Europe/Berlin", in the process that was
	// seen last. It is "" for intervals and for schedules of your own. Zones is empty unless
	// processes have announced the job with other ticks in other zones: it then has all of these
	// zones.
	Zone  string   `json:"zone,omitempty"`
	Zones []string `json:"zones,omitempty"`
	// Seen is the hour in which a process last announced the job: when it started, or later.
	Seen   time.Time `json:"seen"`
	Paused bool      `json:"-"`
}

// An announcement is a JobInfo as the store keeps it.
type announcement struct {
	JobInfo

	Shape string    `json:"shape,omitempty"` // of ticks.Shape
	Ticks string    `json:"ticks,omitempty"` // what tells its ticks from those in another zone
	Until time.Time `json:"until,omitzero"`  // the process announces the job again before
}

const (
	// directory is the name of the log in which jobs are announced.
	directory = "cron-jobs"
	// maxAnnounced is how many announcements are kept.
	maxAnnounced = 2000
)

// announce makes the job known to other programs, and warns of processes with other ticks.
// Processes that announce it in the same hour write the same entry.
func (b *job) announce() error {
	now := b.now().UTC()
	own := b.announcement(now)
	record, err := json.Marshal(own)
	if err != nil {
		return nil //nolint:nilerr // it could never be written
	}
	line := driver.Entry{At: max(own.Seen.UnixMilli(), 0), Record: record}
	if err := b.ledger.Append(b.jobs.ctx, directory, line, maxAnnounced); err != nil {
		return err
	}
	if err := b.compareZones(own, line, now); err != nil {
		return err
	}
	b.mu.Lock()
	b.announceAt = now.Add(own.Until.Sub(own.Seen) / 2)
	b.mu.Unlock()
	return nil
}

// announced returns the jobs by name, each as it was announced last.
func (c *Control) announced(ctx context.Context) ([]JobInfo, error) {
	entries, err := driver.Entries(ctx, c.ledger, directory, maxAnnounced)
	if err != nil {
		return nil, err
	}
	var all []JobInfo
	newest := map[string]announcement{}
	zones := map[string][]string{}
	for _, e := range entries { // the newest first
		var a announcement
		if json.Unmarshal(e.Record, &a) != nil || a.Name == "" {
			continue
		}
		last, seen := newest[a.Name]
		switch {
		case !seen:
			newest[a.Name] = a
			all = append(all, a.JobInfo)
		case a.Until.After(c.now()) && a.otherTicks(last) && !slices.Contains(zones[a.Name], a.Zone):
			zones[a.Name] = append(zones[a.Name], a.Zone)
		}
	}
	for i, info := range all {
		if others := zones[info.Name]; len(others) > 0 {
			all[i].Zones = append([]string{info.Zone}, others...)
		}
	}
	slices.SortFunc(all, func(a, b JobInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// List returns the jobs that processes have announced, by name, and whether they are paused. A
// process announces its jobs when it starts, and again every half day, or after two ticks if these
// are further apart. Jobs that no process has any more stay on the list for
// a year, with an old Seen. The error is that of the store.
func (c *Control) List(ctx context.Context) ([]JobInfo, error) {
	all, err := c.announced(ctx)
	if err != nil {
		return nil, fmt.Errorf("guardcron: list of jobs: %w", err)
	}
	if len(all) == 0 {
		return nil, nil
	}
	names := make([]string, len(all))
	for i, info := range all {
		names[i] = info.Name
	}
	last, err := lastPauses(ctx, c.ledger, names)
	if err != nil {
		return nil, fmt.Errorf("guardcron: list of jobs: %w", err)
	}
	for i := range all {
		all[i].Paused = last[i].lasts(c.now())
	}
	return all, nil
}
