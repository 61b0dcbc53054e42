package tracing

import (
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/signals"
)

const (
	// DefaultMaxNames is how many names metrics distinguish unless WithMaxNames sets another
	// number.
	DefaultMaxNames = 100
	// OtherName is the name in metrics of all work beyond WithMaxNames.
	OtherName = "_OTHER"
	// NoName is the name of work that has none, neither from guard.WithName nor from an adapter.
	NoName = signals.NoName

	namesLimit = 10_000
)

// A Job declares a kind of work. Its series then exist, at zero, before the work has run, and its
// name is never counted under OtherName.
type Job struct {
	// Name is the name of the work, as in guard.WithName.
	Name string
	// Every is how often the work should succeed, or 0. It is the value of
	// onerun.run.expected_interval, by which an alert notices that the work did not run.
	Every time.Duration
	// Single means that the work has one key, so two leases at the same time are one too many.
	// onerun.lease.active then has onerun.max_holders="1".
	Single bool
}

// An Option is a setting of New. New returns an error if it cannot work.
type Option func(*settings)

type settings struct {
	tracers  trace.TracerProvider
	meters   metric.MeterProvider
	redact   func(string) string
	jobs     []Job
	maxNames int
	renewals bool
	noLinks  bool
	err      *guard.SettingError // the first bad setting
}

func newSettings(opts []Option) (settings, error) {
	s := settings{redact: signals.Redact, maxNames: DefaultMaxNames}
	for _, opt := range opts {
		if opt == nil {
			s.refuse("Option", "nil", "must not be nil")
			continue
		}
		opt(&s)
	}
	if len(s.jobs) > s.maxNames {
		s.refuse("WithMaxNames", s.maxNames, fmt.Sprintf("must not be less than the %d names of WithJob", len(s.jobs)))
	}
	if s.err != nil {
		return s, s.err
	}
	return s, nil
}

func (s *settings) refuse(setting string, value any, reason string) {
	if s.err == nil {
		s.err = &guard.SettingError{Setting: "tracing." + setting, Value: fmt.Sprint(value), Reason: reason}
	}
}

// WithTracerProvider sets where spans go. Set the global provider explicitly if a tool attaches to
// the program from outside and traces by its default provider. Defaults to the global provider
// (otel.GetTracerProvider), even if it is set after New.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(s *settings) {
		if p == nil {
			s.refuse("WithTracerProvider", "nil", "must not be nil")
			return
		}
		s.tracers = p
	}
}

// WithMeterProvider sets where metrics go. Defaults to the global provider
// (otel.GetMeterProvider), even if it is set after New.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) {
		if p == nil {
			s.refuse("WithMeterProvider", "nil", "must not be nil")
			return
		}
		s.meters = p
	}
}

// WithJob declares kinds of work. It may be used several times. The series of a name that is not
// declared begin with its first event. Defaults to none.
func WithJob(jobs ...Job) Option {
	return func(s *settings) {
		for _, j := range jobs {
			switch {
			case j.Name == "":
				s.refuse("WithJob", `Name ""`, "must not be empty")
			case j.Every < 0:
				s.refuse("WithJob", fmt.Sprintf("%s: Every %v", j.Name, j.Every), "must not be negative")
			case s.declared(j.Name):
				s.refuse("WithJob", j.Name, "must not be declared twice")
			default:
				s.jobs = append(s.jobs, j)
			}
		}
	}
}

func (s *settings) declared(name string) bool {
	for _, j := range s.jobs {
		if j.Name == name {
			return true
		}
	}
	return false
}

// WithRedactor sets the function that redacts keys and owners in spans. It is called
// concurrently. Its result is shown as it is, and "" leaves the attribute out.
//
// Defaults to the first eight bytes of the SHA-256 sum, in hexadecimal digits. Equal keys have
// equal results. A reader that can guess a key can check the guess. logging.WithRedactor is the
// same for logs.
func WithRedactor(redact func(string) string) Option {
	return func(s *settings) {
		if redact == nil {
			s.refuse("WithRedactor", "nil", "must not be nil")
			return
		}
		s.redact = redact
	}
}

// WithMaxNames bounds how many names metrics distinguish, so that a name which is made from data
// does no harm. Work beyond the bound counts under OtherName. Spans keep their names. n
// is from 1 to 10,000. Defaults to DefaultMaxNames, 100.
func WithMaxNames(n int) Option {
	return func(s *settings) {
		if n < 1 || n > namesLimit {
			s.refuse("WithMaxNames", n, fmt.Sprintf("must be from 1 to %d", namesLimit))
			return
		}
		s.maxNames = n
	}
}

// WithRenewalSpans makes a span of each renewal. A job of an hour with a TTL of 30 s has 360 of
// them. Defaults to none: the span of the run has their number.
func WithRenewalSpans() Option { return func(s *settings) { s.renewals = true } }

// WithoutLinks keeps traceparents out of the labels of leases, and does not look for them there.
// Defaults to links: a lease carries the traceparent of a sampled span, and a call that finds the
// key busy or done links to that span.
func WithoutLinks() Option { return func(s *settings) { s.noLinks = true } }

// providers returns the providers, the global ones by default.
func (s *settings) providers() (trace.TracerProvider, metric.MeterProvider) {
	tracers, meters := s.tracers, s.meters
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	return tracers, meters
}
