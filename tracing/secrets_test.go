package tracing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/guard/guardtest"
	"github.com/seed-1795987d/onerun/internal/signals"
	"github.com/seed-1795987d/onerun/logging"
	"github.com/seed-1795987d/onerun/tracing"
)

// leaks plays all events of a key and an owner, and returns all that was reported.
func leaks(t *testing.T, key, owner string, redact func(string) string) string {
	t.Helper()
	spans, reader, logs := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader(), new(bytes.Buffer)
	hook, err := tracing.New(
		tracing.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))),
		tracing.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))),
		tracing.WithRenewalSpans(), tracing.WithRedactor(redact),
	)
	require.NoError(t, err)
	log, err := logging.New(slog.New(slog.NewJSONHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		logging.WithLongWait(time.Second), logging.WithRedactor(redact))
	require.NoError(t, err)
	inner := memory.New()
	store := &guardtest.Scripted{Inner: inner}
	g, err := guard.New(store, guard.WithTTL(ttl), guard.WithName("report"), guard.WithHook(hook), guard.WithHook(log), guard.WithOwner(owner))
	require.NoError(t, err)
	fails := func(op driver.Op, kind driver.StoreErrorKind) error {
		return &guard.StoreError{Backend: "test", Op: op, Key: key, Addr: "127.0.0.1:6379", Kind: kind, Err: fmt.Errorf("no answer for %q of %q, or %s of %s", key, owner, key, owner)}
	}
	ctx := t.Context()
	started := make(chan struct{})
	go func() {
		_ = g.Do(ctx, key, func(context.Context) error {
			close(started)
			time.Sleep(10 * time.Second)
			return errors.New("failed at " + key)
		})
	}()
	<-started
	// busy
	_ = g.Do(ctx, key, nothing, guard.WithOwner("another"), guard.WithLabel("who has "+key))
	_ = g.Do(ctx, key, nothing, guard.WithOwner("another"), guard.WithLabel("who has "+key), guard.WithOnce(time.Hour), guard.WithWait(guard.Forever))
	_ = g.Do(ctx, key, nothing, guard.WithOnce(time.Hour))    // done
	_ = g.Do(ctx, key+"/3", func(ctx context.Context) error { // broken
		lease, _ := guard.FromContext(ctx)
		require.NoError(t, g.Adapter().RecordBreak(ctx, lease.ID(), "broken: "+key+"/3 hangs"))
		_, err := inner.Release(ctx, lease.Claims()[0], driver.After{})
		return err
	})
	g.Adapter().Report(ctx, guard.Outcome{Key: key, Owner: owner, Label: "who has " + key, Adapter: "cron", Result: "elsewhere", Skipped: "done", Err: errors.New(key)})

	renewing := key + "/2"
	store.OnRenew = func(_ context.Context, n int, _ driver.Claim) (bool, error) {
		return false, fails(driver.OpRenew, driver.KindTimeout)
	}
	_ = g.Do(ctx, renewing, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
	start := time.Now()
	store.OnRelease = func(ctx context.Context, n int, c driver.Claim, after driver.After) (bool, error) {
		if time.Since(start) < 10*time.Second {
			return false, fails(driver.OpRelease, driver.KindConnection)
		}
		return inner.Release(ctx, c, after)
	}
	_ = g.Do(ctx, renewing, nothing, guard.WithOnce(time.Hour))
	store.OnAcquire = func(context.Context, int, driver.Claim) (driver.Answer, error) {
		return driver.Answer{}, fails(driver.OpAcquire, "made up "+driver.StoreErrorKind(key))
	}
	_ = g.Do(ctx, key, nothing)
	_ = g.Do(ctx, key, func(context.Context) error { return nil }, guard.WithWait(time.Second))
	time.Sleep(2 * time.Minute)
	require.NoError(t, g.Close(context.Background()))
	synctest.Wait()

	var metrics metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(ctx, &metrics))
	all, err := json.Marshal(metrics.ScopeMetrics)
	require.NoError(t, err)
	text := string(all) + logs.String()
	for _, span := range spans.GetSpans() {
		text += fmt.Sprintf("%s %v %v %v %v\n", span.Name, span.Attributes, span.Links, span.Events, span.Status)
	}
	require.Contains(t, text, "lease lost")
	require.Contains(t, text, "release failed")
	require.Contains(t, text, "store cannot be asked")
	require.Contains(t, text, "renew report")
	return text
}

// FuzzSecrets looks for a key and an owner, as they are and as they may be written, in all reports
// of them.
func FuzzSecrets(f *testing.F) {
	f.Add("coupon:42:user:7", "alice@example.com")
	f.Add(`quoted "key" with \ and 'more'`, "\x01owner\n")
	f.Add("schlüssel:größe", "öwner✓")
	f.Add("a key with spaces and report in it", "owner of it all")
	f.Add(strings.Repeat("long", 60), strings.Repeat("o", 128))
	f.Fuzz(func(t *testing.T, key, owner string) {
		// Short ones are found in other words, and refused ones are reported nowhere.
		if driver.CheckKey(key+"/2") != nil || len(key) < 8 || len(owner) < 8 || len(owner) > 128 || strings.ContainsAny(owner, "\x00") || strings.ContainsAny(key, "\x00") {
			return
		}
		if namespace, _ := driver.SplitNamespace(key); namespace != "" {
			return // refused, as the Guard has no namespace
		}
		for _, word := range []string{key, owner} {
			if strings.Trim(word, "0123456789abcdef -:.TZ") == "" || strings.Contains(everyWord, word) {
				return // found in times and numbers
			}
		}
		synctest.Test(t, func(t *testing.T) {
			text := leaks(t, key, owner, signals.Redact)
			for _, word := range []string{key, owner} {
				quoted := strconv.Quote(word)
				inJSON, err := json.Marshal(word)
				require.NoError(t, err)
				for _, form := range []string{word, quoted[1 : len(quoted)-1], string(inJSON[1 : len(inJSON)-1])} {
					require.NotContains(t, text, form)
				}
			}
		})
	})
}

// everyWord is where a word of telemetry itself could be found.
const everyWord = `"report" "acquire report" "onerun.result" "lease acquired" "released" "connection" "127.0.0.1:6379"`

func TestSecrets_areShownAsTheRedactorSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := leaks(t, "coupon:42:user:7", "alice@example.com", func(secret string) string { return "<" + strconv.Itoa(len(secret)) + ">" })
		require.Contains(t, text, "<16>")
		require.Contains(t, text, "<17>")
		require.NotContains(t, text, "coupon")
	})
	synctest.Test(t, func(t *testing.T) {
		text := leaks(t, "coupon:42:user:7", "alice@example.com", func(string) string { panic("redactor") })
		require.NotContains(t, text, "coupon")
		require.NotContains(t, text, "alice")
		require.NotContains(t, text, "onerun.key")
	})
	synctest.Test(t, func(t *testing.T) {
		text := leaks(t, "coupon:42:user:7", "alice@example.com", func(secret string) string { return secret })
		require.Contains(t, text, "coupon:42:user:7", "as it was asked for")
	})
	require.Equal(t, "2cf24dba5fb0a30e", signals.Redact("hello"))
}

// An exporter drops a whole batch of spans if one text in it is no UTF-8.
func TestSpans_haveNoTextThatIsNotUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asItIs := tracing.WithRedactor(func(secret string) string { return secret })
		s := newSite(t, newTelescope(t, asItIs, tracing.WithMaxNames(1)), guard.WithLabel("host\xff"), guard.WithOwner("owner\xff"))
		require.NoError(t, s.one.Do(t.Context(), "k\xff", func(context.Context) error {
			require.ErrorIs(t, s.other.Do(t.Context(), "k\xff", nothing), guard.ErrBusy)
			return nil
		}))
		for _, name := range []string{"n\xff", "beyond WithMaxNames\xff"} {
			s.one.Adapter().Report(t.Context(), guard.Outcome{Name: name, Key: "k\xff", Label: "host\xff", Skipped: "busy"})
		}
		s.close(t)
		spans := s.spans.GetSpans()
		require.Len(t, spans, 6)
		for _, span := range spans {
			require.True(t, utf8.ValidString(span.Name), "%q", span.Name)
			for _, attr := range span.Attributes {
				require.True(t, utf8.ValidString(attr.Value.AsString()), "%s=%q", attr.Key, attr.Value.AsString())
			}
		}
	})
}
