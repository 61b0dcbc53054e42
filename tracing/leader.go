package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
)

// An election is what metrics show of the guard.Candidates of a name in this process.
type election struct {
	mu        sync.Mutex
	seen      bool // there was one
	terms     map[term]struct{}
	campaigns map[*campaign]struct{}
	absence   time.Duration // of ended campaigns
}

// A term is one that is under way. The owner is the random ID of its lease.
type term struct{ key, owner string }

// A campaign is one that is under way: the candidate waits until it leads.
type campaign struct {
	known   time.Time // until when a leader is known
	absence time.Duration
}

// until adds the time for which no leader was known, until an instant.
func (c *campaign) until(now time.Time) {
	if absent := now.Sub(c.known); absent > 0 {
		c.absence += absent
		c.known = now
	}
}

type campaignKey struct{}

// campaign begins one, and returns ctx with it.
func (x *election) campaign(ctx context.Context) context.Context {
	c := &campaign{known: time.Now()}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.campaigns == nil {
		x.campaigns = map[*campaign]struct{}{}
	}
	x.seen = true
	x.campaigns[c] = struct{}{}
	return context.WithValue(ctx, campaignKey{}, c)
}

// follows notes that another candidate leads, according to the store's answer.
func (x *election) follows(ctx context.Context, answer guard.StoreAnswer, ttl time.Duration) {
	c, ok := ctx.Value(campaignKey{}).(*campaign)
	if !ok || answer.State != driver.Busy {
		return
	}
	left := answer.Left
	if left < 0 { // unknown
		left = ttl
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	x.count(c, now)
	c.known = now.Add(left)
}

// count adds to the absence, unless this process leads. x.mu must be held.
func (x *election) count(c *campaign, now time.Time) {
	if len(x.terms) > 0 && now.After(c.known) {
		c.known = now
	}
	c.until(now)
}

// decided ends the campaign of ctx.
func (x *election) decided(ctx context.Context) {
	c, ok := ctx.Value(campaignKey{}).(*campaign)
	if !ok {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.count(c, time.Now())
	x.absence += c.absence
	delete(x.campaigns, c)
}

func (x *election) begin(e *guard.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.terms == nil { // the hook was off when the campaign began
		x.terms = map[term]struct{}{}
	}
	x.seen = true
	x.terms[term{e.Key, e.Owner}] = struct{}{}
}

// end ends the term of e, unless it was ended before: a lease can be lost before the run ends.
func (x *election) end(e *guard.Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.terms, term{e.Key, e.Owner})
}

// state returns the number of terms under way, and how long no leader was known. ok is false if
// there was no candidate.
func (x *election) state() (leading int, absence time.Duration, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	absence = x.absence
	for c := range x.campaigns {
		x.count(c, now)
		absence += c.absence
	}
	return len(x.terms), absence, x.seen
}

// observeElections registers the instruments of leaders that are read when metrics are collected.
func (t *telemetry) observeElections(meter metric.Meter) {
	leading, err := meter.Int64ObservableGauge("onerun.leader.leading", metric.WithUnit("{term}"),
		metric.WithDescription("Reports whether this process leads now: 1 or 0."))
	report(err)
	absence, err := meter.Float64ObservableCounter("onerun.leader.absence", metric.WithUnit("s"),
		metric.WithDescription("Counts the seconds for which a candidate campaigned and knew no leader."))
	report(err)
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		t.names.each(func(w *work) {
			if n, absent, ok := w.election.state(); ok {
				set := w.with(labels{}).observe
				o.ObserveInt64(leading, int64(n), set...)
				o.ObserveFloat64(absence, absent.Seconds(), set...)
			}
		})
		return nil
	}, leading, absence)
	report(err)
}
