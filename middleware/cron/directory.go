package guardcron

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	// pausedAtOnce bounds how many jobs are asked for at a time.
	pausedAtOnce = 16
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
	errs := make([]error, len(all))
	slots := make(chan struct{}, pausedAtOnce)
	var asked sync.WaitGroup
	for i := range all {
		slots <- struct{}{}
		asked.Go(func() {
			defer func() { <-slots }()
			all[i].Paused, errs[i] = c.Paused(ctx, all[i].Name)
		})
	}
	asked.Wait()
	if err := cmp.Or(errs...); err != nil {
		return nil, err
	}
	return all, nil
}
