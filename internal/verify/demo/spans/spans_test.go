package spans_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
)

func TestRead_readsWhatStdouttraceWrites(t *testing.T) {
	for _, opts := range [][]stdouttrace.Option{nil, {stdouttrace.WithPrettyPrint()}} {
		var file bytes.Buffer
		exporter, err := stdouttrace.New(append(opts, stdouttrace.WithWriter(&file))...)
		require.NoError(t, err)
		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithResource(
			resource.NewSchemaless(attribute.String("service.name", "shop"), attribute.String("service.instance.id", "server 1"))))
		tracer, begin := provider.Tracer("test"), time.Unix(1_800_000_000, 0)
		ctx, root := tracer.Start(context.Background(), "root", trace.WithTimestamp(begin), trace.WithSpanKind(trace.SpanKindServer))
		_, child := tracer.Start(ctx, "child", trace.WithTimestamp(begin.Add(time.Millisecond)), trace.WithLinks(
			trace.Link{SpanContext: root.SpanContext(), Attributes: []attribute.KeyValue{attribute.String("how", "back")}}))
		child.SetAttributes(attribute.Int64("large", 1<<53+1), attribute.Bool("yes", true))
		child.SetStatus(codes.Error, "")
		child.End(trace.WithTimestamp(begin.Add(2 * time.Millisecond)))
		root.End(trace.WithTimestamp(begin.Add(3 * time.Millisecond)))

		all, err := spans.Read(&file)
		require.NoError(t, err)
		require.Len(t, all, 2)
		got, want := all[0], spans.Span{
			Name: "child", Trace: child.SpanContext().TraceID().String(), ID: child.SpanContext().SpanID().String(),
			Parent: root.SpanContext().SpanID().String(), Kind: 1, Failed: true, Service: "shop", Where: "server 1",
			Attributes: map[string]string{"large": "9007199254740993", "yes": "true"},
			Links: []spans.Link{{
				Trace: root.SpanContext().TraceID().String(), ID: root.SpanContext().SpanID().String(), Attributes: map[string]string{"how": "back"},
			}},
		}
		require.Equal(t, time.Millisecond, got.Start.Sub(begin))
		require.Equal(t, 2*time.Millisecond, got.End.Sub(begin))
		want.Start, want.End = got.Start, got.End
		require.Equal(t, want, got)
		require.Equal(t, "root", all[1].Name)
		require.Empty(t, all[1].Parent)
		require.Equal(t, 2, all[1].Kind)
	}
}

func TestRead_saysWhichSpanIsNone(t *testing.T) {
	const good = `{"Name":"a","SpanContext":{"TraceID":"00000000000000000000000000000001","SpanID":"0000000000000001"},` +
		`"StartTime":"2026-11-21T10:00:00Z","EndTime":"2026-11-21T10:00:01Z"}`
	_, err := spans.Read(strings.NewReader(good + "\n" + good))
	require.NoError(t, err)
	for text, says := range map[string]string{
		"  0.02s  server 1   serves": "span 2, before byte",
		`{"Name":`:                   "unexpected EOF",
		`[]`:                         "cannot unmarshal array",
		`{}`:                         "it has no Name",
		strings.ReplaceAll(good, "00000000000000000000000000000001", "xyz"):        `a has the TraceID "xyz"`,
		strings.ReplaceAll(good, `"SpanID":"0000000000000001"`, `"SpanID":""`):     `a has the SpanID ""`,
		strings.ReplaceAll(good, `"2026-11-21T10:00:01Z"`, `"2026-11-21T09:00Z"`):  "parsing time",
		strings.ReplaceAll(good, "10:00:01Z", "09:00:00Z"):                         "a lasts from 2026-11-21 10:00:00",
		strings.ReplaceAll(good, `"StartTime":"2026-11-21T10:00:00Z"`, `"Kind":1`): "a lasts from 0001-01-01",
	} {
		_, err := spans.Read(strings.NewReader(good + "\n" + text))
		require.ErrorContains(t, err, "spans: span 2, before byte ", text)
		require.ErrorContains(t, err, says, text)
	}
}
