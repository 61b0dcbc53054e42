package claim

import (
	"fmt"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// Settings are what an adapter needs, however its broker works. The methods set what options of the
// same names set in each adapter.
type Settings struct {
	refused.List

	Adapter string // "watermill", of the package guardwatermill
	Group   string // of kinds of work that share their keys, or ""
	Once    time.Duration
	Wait    time.Duration
	Delay   time.Duration
	TTL     time.Duration // if neither guard.New nor Lease has one
	Lease   []guard.Option
	// Unguarded is what a KeyFunc returns for a message that needs no key.
	Unguarded error
	// OfOne is the name of the option that sets options for the lease of one message, or "".
	OfOne string
	// Apart means that the marker of Once has a key of its own, and a lease of its own.
	Apart bool
}

// WithGroup sets the group.
func (s *Settings) WithGroup(name string) {
	if name == "" {
		s.Refuse("WithGroup", nil, "must not be empty")
	}
	s.Group = name
}

// WithOnce sets the window of the marker. 0 is off.
func (s *Settings) WithOnce(window time.Duration) { s.NotNegative(&s.Once, "WithOnce", window) }

// WithWait sets how long a message waits for its key.
func (s *Settings) WithWait(d time.Duration) { s.NotNegative(&s.Wait, "WithWait", d) }

// WithDelay sets for how long a message is postponed, at most the longest delay.
func (s *Settings) WithDelay(d, longest time.Duration) {
	s.NotNegative(&s.Delay, "WithDelay", d)
	if d > longest {
		s.Refuse("WithDelay", d, fmt.Sprintf("must be at most %v", longest))
	}
}

// LongestDelay bounds a delay that keeps nothing busy. What is added to it must fit a
// time.Duration.
const LongestDelay = 10 * 365 * 24 * time.Hour

// WithLease adds options of all leases.
func (s *Settings) WithLease(opts []guard.Option) { s.Lease = append(s.Lease, opts...) }

// unused returns the options of guard that the adapter cannot honor, and why.
func (s *Settings) unused() map[string]string {
	no := s.unusedOfOne()
	owner := "cannot be that of all messages, which would hold their keys together"
	if s.OfOne != "" {
		owner += ": use " + s.OfOne
	}
	no["WithOwner"], no["WithOwnerFrom"] = owner, owner
	return no
}

// unusedOfOne is unused for the options of one message.
func (s *Settings) unusedOfOne() map[string]string {
	mine := "guard" + s.Adapter
	no := map[string]string{
		"WithWait": "has no effect here: WithWait of " + mine + " sets how long to wait",
		"WithOnce": "has no effect here: WithOnce of " + mine + " keeps out repeats",
	}
	if s.Once > 0 && !s.Apart {
		const alone = "cannot work on the key of WithOnce: its marker is of one run"
		no["WithLimit"], no["WithShared"] = alone, alone
	}
	return no
}
