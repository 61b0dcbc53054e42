package inspect

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// A Process is what a process has reported of itself, see Announce.
type Process struct {
	ID    string    `json:"id"`    // random, another one at each start
	Label string    `json:"label"` // see guard.WithLabel
	Began time.Time `json:"began"` // when it began to report
	// Time is when it reported this, by its own clock.
	Time time.Time `json:"time"`
	// Held are the leases that it had held for a second or longer, the oldest first. More is how
	// many others it held.
	Held []guard.HeldLease `json:"held,omitempty"`
	More int               `json:"more,omitempty"`
	Left bool              `json:"left,omitempty"` // it has ended its reports
}

const (
	// AnnounceInterval is how often a process reports what it holds.
	AnnounceInterval = 10 * time.Second
	// announcedFor is how long a report is shown.
	announcedFor = 3 * AnnounceInterval
	// worthTelling is how long a lease is held before it is reported.
	worthTelling = time.Second
	maxTold      = 100
	// processesName is the name of the log of reports in the Ledger.
	processesName = "onerun:processes"
	// keptReports is how many reports the store keeps: those of 600 processes.
	keptReports = 2000
	lastReport  = time.Second
)

// Announce reports what the Guard holds, every ten seconds until ctx ends, so that Processes shows
// it. It then says that the process has left, and returns the error of ctx. Start it in a
// goroutine, before the work begins:
//
//	go i.Announce(ctx)
//
// A report is one write of a few hundred bytes, whatever the number of leases. If the store cannot
// be asked, the next report is ten seconds later. Announce returns a *guard.SettingError at once if
// the backend keeps no records (driver.Ledger).
func (i *Inspector) Announce(ctx context.Context) error {
	if i.ledger == nil {
		return &guard.SettingError{Setting: "Announce", Reason: "the backend keeps no records (driver.Ledger)"}
	}
	p := Process{ID: rand.Text(), Label: i.guard.Adapter().Label(), Began: time.Now()}
	ticker := time.NewTicker(AnnounceInterval)
	defer ticker.Stop()
	for {
		p.Held, p.More = i.guard.Adapter().Held(worthTelling, maxTold)
		_ = i.report(ctx, p)
		select {
		case <-ctx.Done():
			p.Held, p.More, p.Left = nil, 0, true
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastReport)
			defer cancel()
			_ = i.report(last, p)
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func (i *Inspector) report(ctx context.Context, p Process) error {
	p.Time = time.Now()
	record, err := json.Marshal(p)
	for ; len(record) > driver.MaxEntry; record, err = json.Marshal(p) { // the keys are long
		half := len(p.Held) / 2
		p.More += len(p.Held) - half
		p.Held = p.Held[:half]
	}
	if err != nil {
		return err
	}
	return i.ledger.Append(ctx, processesName, driver.Entry{At: p.Time.UnixMilli(), Record: record}, keptReports)
}

// Processes returns the processes that have reported in the last 30 seconds (Announce), by label.
// It reads one record for each report of that time, and no lease. Of more than 600 processes, it
// returns some. A report has the time of its process: a process whose clock is half a minute
// behind the others' is not shown. It returns none if the backend keeps no records
// (driver.Ledger). Its errors are those of Show.
func (i *Inspector) Processes(ctx context.Context) ([]Process, error) {
	if i.ledger == nil {
		return nil, nil
	}
	entries, err := driver.Entries(ctx, i.ledger, processesName, keptReports)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixMilli()
	seen := map[string]bool{}
	var all []Process
	for _, e := range entries { // the newest first
		var p Process
		if e.At < now-announcedFor.Milliseconds() {
			break
		}
		if json.Unmarshal(e.Record, &p) != nil || seen[p.ID] {
			continue
		}
		seen[p.ID] = true
		if !p.Left {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b Process) int {
		return strings.Compare(a.Label+" "+a.ID, b.Label+" "+b.ID)
	})
	return all, nil
}
