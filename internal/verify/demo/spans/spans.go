// Package spans reads what OpenTelemetry's stdouttrace writes.
package spans

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Span is one of a trace.
type Span struct {
	Name           string
	Trace, ID      string // in hex
	Parent         string // in hex, or "" for the root of a trace
	Kind           int    // as in go.opentelemetry.io/otel/trace: 2 is a server's
	Start, End     time.Time
	Failed         bool              // its status is Error
	Attributes     map[string]string // values as text
	Links          []Link
	Service, Where string // service.name and service.instance.id, or ""
}

// A Link leads to another span, mostly of another trace.
type Link struct {
	Trace, ID  string
	Attributes map[string]string
}

// attributes are as they stand in JSON.
type attributes []struct {
	Key   string
	Value struct{ Value any }
}

func (a attributes) byKey() map[string]string {
	m := make(map[string]string, len(a))
	for _, kv := range a {
		m[kv.Key] = fmt.Sprint(kv.Value.Value)
	}
	return m
}

type spanContext struct{ TraceID, SpanID string }

// line is a span as it stands in JSON.
type line struct {
	Name                string
	SpanContext, Parent spanContext
	SpanKind            int
	StartTime, EndTime  time.Time
	Attributes          attributes
	Links               []struct {
		SpanContext spanContext
		Attributes  attributes
	}
	Status   struct{ Code string }
	Resource attributes
}

const (
	noTrace = "00000000000000000000000000000000"
	noSpan  = "0000000000000000"
)

// Read returns the spans in the order in which they stand in r: JSON objects, one a line or not.
// Its error says which one is none.
func Read(r io.Reader) (all []Span, err error) {
	d := json.NewDecoder(r)
	d.UseNumber() // large integers stay as they are
	for {
		var l line
		err := d.Decode(&l)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, fmt.Errorf("spans: span %d, before byte %d, is not as stdouttrace writes it: %w", len(all)+1, d.InputOffset(), err)
		}
		all = append(all, l.span())
	}
}

func (l *line) check() error {
	switch {
	case l.Name == "":
		return errors.New("it has no Name")
	case len(l.SpanContext.TraceID) != len(noTrace) || l.SpanContext.TraceID == noTrace:
		return fmt.Errorf("%s has the TraceID %q", l.Name, l.SpanContext.TraceID)
	case len(l.SpanContext.SpanID) != len(noSpan) || l.SpanContext.SpanID == noSpan:
		return fmt.Errorf("%s has the SpanID %q", l.Name, l.SpanContext.SpanID)
	case l.StartTime.IsZero() || l.EndTime.Before(l.StartTime):
		return fmt.Errorf("%s lasts from %v to %v", l.Name, l.StartTime, l.EndTime)
	}
	return nil
}

func (l *line) span() Span {
	who := l.Resource.byKey()
	s := Span{
		Name: l.Name, Trace: l.SpanContext.TraceID, ID: l.SpanContext.SpanID, Kind: l.SpanKind,
		Start: l.StartTime, End: l.EndTime, Failed: l.Status.Code == "Error", Attributes: l.Attributes.byKey(),
		Service: who["service.name"], Where: who["service.instance.id"],
	}
	if l.Parent.SpanID != noSpan {
		s.Parent = l.Parent.SpanID
	}
	for _, link := range l.Links {
		s.Links = append(s.Links, Link{Trace: link.SpanContext.TraceID, ID: link.SpanContext.SpanID, Attributes: link.Attributes.byKey()})
	}
	return s
}
