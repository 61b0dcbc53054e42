package tracing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/tracing"
)

const (
	aTrace = "0af7651916cd43dd8448eb211c80319c"
	aSpan  = "b7ad6b7169203331"
)

// linksOf returns the links of a caller that finds the key held under the label.
func linksOf(t *testing.T, label string, opts ...tracing.Option) (links []sdktrace.Link, holder string) {
	t.Helper()
	s := newTelescope(t, opts...)
	store := memory.New()
	_, err := store.TryAcquire(t.Context(), driver.Claim{Key: "k", ID: "other", Owner: "other", TTL: time.Minute, Label: label})
	require.NoError(t, err)
	g, err := guard.New(store, guard.WithHook(s.hook))
	require.NoError(t, err)
	require.ErrorIs(t, g.Do(t.Context(), "k", nothing), guard.ErrBusy)
	require.NoError(t, g.Close(t.Context()))
	spans := s.spans.GetSpans()
	require.Len(t, spans, 1)
	for _, a := range spans[0].Attributes {
		if a.Key == "onerun.holder" {
			holder = a.Value.AsString()
		}
	}
	return spans[0].Links, holder
}

func TestLink_isMadeToTheSpanInTheLabel(t *testing.T) {
	for _, label := range []string{"web-1 pid 7 ", ""} {
		links, holder := linksOf(t, label+"00-"+aTrace+"-"+aSpan+"-01")
		require.Len(t, links, 1)
		require.Equal(t, aTrace, links[0].SpanContext.TraceID().String())
		require.Equal(t, aSpan, links[0].SpanContext.SpanID().String())
		require.True(t, links[0].SpanContext.IsRemote())
		require.Equal(t, strings.TrimSpace(label), holder)
	}
	links, _ := linksOf(t, "00-"+aTrace+"-"+aSpan+"-01", tracing.WithoutLinks())
	require.Empty(t, links)
}

// What comes from the store may have been written by anybody.
func TestLink_isNotMadeToWhatIsNoTraceparent(t *testing.T) {
	for name, label := range map[string]string{
		"nothing": "", "words": "web-1 pid 7", "another version": "01-" + aTrace + "-" + aSpan + "-01", "not sampled": "00-" + aTrace + "-" + aSpan + "-00",
		"upper case": "00-" + strings.ToUpper(aTrace) + "-" + aSpan + "-01", "no trace": "00-" + strings.Repeat("0", 32) + "-" + aSpan + "-01",
		"no span": "00-" + aTrace + "-" + strings.Repeat("0", 16) + "-01", "not hex": "00-" + aTrace[:31] + "g-" + aSpan + "-01",
		"too long": "00-" + aTrace + "-" + aSpan + "-01-more", "cut": "00-" + aTrace + "-" + aSpan, "another hyphen": "00-" + aTrace + "_" + aSpan + "-01",
		"not the last word": "00-" + aTrace + "-" + aSpan + "-01 more", "very long": strings.Repeat("x", 400), "no text": "\xff\xfe\x00 \x01",
	} {
		t.Run(name, func(t *testing.T) {
			links, holder := linksOf(t, label)
			require.Empty(t, links)
			require.LessOrEqual(t, len(holder), 304)
		})
	}
}

func TestLabel_carriesASampledSpanAndNoOther(t *testing.T) {
	for name, c := range map[string]struct {
		sampler sdktrace.Sampler
		opts    []tracing.Option
		want    string
	}{
		"sampled": {sdktrace.AlwaysSample(), nil, `^me 00-[0-9a-f]{32}-[0-9a-f]{16}-01$`}, "not sampled": {sdktrace.NeverSample(), nil, `^me$`},
		"without links": {sdktrace.AlwaysSample(), []tracing.Option{tracing.WithoutLinks()}, `^me$`},
	} {
		t.Run(name, func(t *testing.T) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(c.sampler), sdktrace.WithSyncer(tracetest.NewInMemoryExporter()))
			hook, err := tracing.New(append(c.opts, tracing.WithTracerProvider(provider))...)
			require.NoError(t, err)
			g, err := guard.New(memory.New(), guard.WithHook(hook), guard.WithLabel("me"))
			require.NoError(t, err)
			require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error {
				var busy *guard.BusyError
				require.ErrorAs(t, g.Do(t.Context(), "k", nothing), &busy)
				require.Regexp(t, c.want, busy.Label)
				return nil
			}))
			require.NoError(t, g.Close(t.Context()))
		})
	}
}

// Instrumentation of the store's client makes a span of each call. It must not make one of calls
// that no caller waits for.
func TestBackground_hasAParentThatWasNotSampled(t *testing.T) {
	s := newTelescope(t)
	ctx := s.hook.Background(context.Background())
	require.False(t, trace.SpanContextFromContext(ctx).IsSampled())
	_, span := s.tracer.Start(ctx, "EVALSHA")
	require.False(t, span.IsRecording())
	span.End()
	require.Empty(t, s.spans.GetSpans())
	_, span = s.tracer.Start(context.Background(), "EVALSHA")
	require.True(t, span.IsRecording(), "as it would be")
	span.End()
}

func TestSpans_ofRenewalsAreMadeOnRequest(t *testing.T) {
	for renewals, opts := range map[bool][]tracing.Option{false: nil, true: {tracing.WithRenewalSpans()}} {
		t.Run(fmt.Sprint(renewals), func(t *testing.T) {
			inRenewal(t, func(t *testing.T, s *site) {
				tree := s.tree()
				require.Equal(t, renewals, strings.Contains(tree, "renew report"), tree)
				require.Contains(t, tree, "onerun.renewals=1")
			}, opts...)
		})
	}
}
