package idempotency

import (
	"context"
	"time"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/middleware/internal/refused"
)

// Settings are what the Options have set. An adapter reads them; programs use the Options, which
// say what each of them means.
type Settings struct {
	refused.List // of the options that cannot work

	Global       bool
	Optional     bool
	Group        string
	Mode         Mode
	Wait         time.Duration
	Waiters      int
	KeyWaiters   int
	ScopeWaiters int // 0 if WithMaxScopeWaiters has not set it
	ScopeRecords int // 0 if there is no bound
	MaxAnswer    int
	Rerun        bool
	Retention    time.Duration
	MaxHold      time.Duration
	RetryAfter   time.Duration
	ClientCancel bool
	FailOpen     bool
	AfterRecord  bool
	Shadow       bool
	Encryption   []EncryptionKey
	Lease        []guard.Option
	Observers    []func(context.Context, Outcome)
}

const (
	// maxRetention is the longest window of guard.WithOnce.
	maxRetention = 10 * 365 * 24 * time.Hour
	// maxAnswer is the largest answer, in bytes, that can be recorded. The rest of guard.MaxRecord
	// has room for its headers.
	maxAnswer = guard.MaxRecord * 3 / 4
	// maxScopeRecords is the largest bound of WithMaxScopeRecords.
	maxScopeRecords = 100_000_000
)

// Defaults returns the settings without any Option.
func Defaults() Settings {
	return Settings{
		Waiters:    1024,
		KeyWaiters: 256,
		MaxAnswer:  maxAnswer,
		Retention:  24 * time.Hour,
		MaxHold:    5 * time.Minute,
		RetryAfter: time.Second,
	}
}
