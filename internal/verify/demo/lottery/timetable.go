package main

import (
	"fmt"
	"time"
)

const rounds = 3

// A timetable is when the rounds are due. It is the same in all replicas.
type timetable struct {
	First int64 // round 1, in seconds since 1970
	Every int64 // from one round to the next, in seconds: a part of a minute
}

// spec is the timetable as cron has it, with a field for the seconds. It knows no last round.
func (t timetable) spec() string {
	return fmt.Sprintf("%d/%d * * * * *", t.First%t.Every, t.Every)
}

// round returns the round that is due at the time, or was the last to be.
func (t timetable) round(at time.Time) int { return int((at.Unix()-t.First)/t.Every) + 1 }
