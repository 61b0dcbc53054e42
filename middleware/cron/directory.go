package guardcron

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard/driver"
)

// A JobInfo is what processes have announced of a job.
type JobInfo struct {
	Name string `json:"name"`
	Spec string `json:"spec,omitempty"` // "" if it was added by Schedule or Wrapper
	// Seen is the hour in which a process last started with the job.
	Seen   time.Time `json:"seen"`
	Paused bool      `json:"-"`
}

const (
	// directory is the name of the log in which jobs are announced.
	directory = "cron-jobs"
	// mostJobs is how many announcements are kept.
	mostJobs = 2000
)

// announce makes the job known to other programs. Processes that start in the same hour write the
// same entry.
func (b *job) announce() error {
	info := JobInfo{Name: b.name, Spec: b.spec, Seen: b.now().UTC().Truncate(time.Hour)}
	record, err := json.Marshal(info)
	if err != nil {
		return nil //nolint:nilerr // it could never be written
	}
	return b.ledger.Append(b.jobs.ctx, directory, driver.Entry{At: max(info.Seen.UnixMilli(), 0), Record: record}, mostJobs)
}

// announced returns the jobs by name, each as it was announced last.
func (c *Control) announced(ctx context.Context) ([]JobInfo, error) {
	entries, err := c.ledger.Entries(ctx, directory, mostJobs)
	if err != nil {
		return nil, err
	}
	var all []JobInfo
	seen := map[string]bool{}
	for _, e := range entries { // the newest first
		var info JobInfo
		if json.Unmarshal(e.Record, &info) == nil && info.Name != "" && !seen[info.Name] {
			seen[info.Name] = true
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b JobInfo) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// List returns the jobs that processes have announced, by name, and whether they are paused. A
// process announces its jobs when it starts. Jobs that no process has any more stay on the list for
// a year, with an old Seen. The error is that of the store.
func (c *Control) List(ctx context.Context) ([]JobInfo, error) {
	all, err := c.announced(ctx)
	if err != nil {
		return nil, fmt.Errorf("guardcron: list of jobs: %w", err)
	}
	paused, err := c.pausedOf(ctx, all)
	if err != nil {
		return nil, fmt.Errorf("guardcron: list of jobs: %w", err)
	}
	for i := range all {
		all[i].Paused = paused[i]
	}
	return all, nil
}

// pausedOf reports which jobs are paused. It reads all numbers of pauses at once, and then the ends
// of those that have begun.
func (c *Control) pausedOf(ctx context.Context, all []JobInfo) ([]bool, error) {
	names, counters := make([]string, len(all)), make([]string, len(all))
	for i, info := range all {
		names[i], counters[i] = ledgerName(info.Name), pauses
	}
	numbers, err := driver.CountersOf(ctx, c.ledger, names, counters)
	if err != nil {
		return nil, err
	}
	var at []int
	names, counters = nil, nil
	for i, n := range numbers {
		if n%2 == 1 {
			at, names, counters = append(at, i), append(names, ledgerName(all[i].Name)), append(counters, pauseEnd+strconv.FormatInt(n, 10))
		}
	}
	ends, err := driver.CountersOf(ctx, c.ledger, names, counters)
	if err != nil {
		return nil, err
	}
	paused := make([]bool, len(all))
	for i, end := range ends {
		paused[at[i]] = end == 0 || c.now().Before(time.UnixMilli(end))
	}
	return paused, nil
}
