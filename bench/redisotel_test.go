package bench_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/seed-1795987d/onerun/backend/single"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/tracing"
)

// ttl is long enough for a machine that does not let us run for five seconds.
const ttl = 9 * time.Second

// A pair is redisotel and our hook, if there is one, over one client and one provider, with the
// default sampler.
type pair struct {
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer
	guard  *guard.Guard
	hook   bool          // ours
	renews chan struct{} // has an element after a renewal
	peek   *redis.Client // another client, without hooks
}

func newPair(t *testing.T, hook bool, opts ...redisotel.TracingOption) *pair {
	t.Helper()
	addr := redistest.Start(t).Addr()
	rdb, peek := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { require.NoError(t, rdb.Close()); require.NoError(t, peek.Close()) })
	p := &pair{hook: hook, spans: tracetest.NewInMemoryExporter(), renews: make(chan struct{}, 1), peek: peek}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(p.spans))
	p.tracer = provider.Tracer("application")
	instrument := func(c *redis.Client) {
		require.NoError(t, redisotel.InstrumentTracing(c, append(opts, redisotel.WithTracerProvider(provider), redisotel.WithDialFilter(true))...))
	}
	instrument(rdb)
	settings := []guard.Option{guard.WithName("work"), guard.WithTTL(ttl)}
	settings = append(settings, guard.WithHook(guard.Hook{Renew: func(_ context.Context, e guard.RenewEvent) {
		if e.Err == nil {
			select {
			case p.renews <- struct{}{}:
			default:
			}
		}
	}}))
	if hook {
		h, err := tracing.New(tracing.WithTracerProvider(provider), tracing.WithMeterProvider(sdkmetric.NewMeterProvider()))
		require.NoError(t, err)
		settings = append(settings, guard.WithHook(h))
	}
	g, err := guard.New(single.New(rdb, single.WithClientSetup(instrument)), settings...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.Background())) })
	p.guard = g
	// the server learns the scripts, and the connection is made
	require.NoError(t, g.Do(t.Context(), "first", func(context.Context) error { return nil }))
	p.spans.Reset()
	return p
}

// request does the work in a span, renewed while it is done, and returns what was seen: what is in
// the span's trace, and what is in none. token is what the store knows the lease by.
func (p *pair) request(t *testing.T, key string) (below, roots tracetest.SpanStubs, token string) {
	t.Helper()
	ctx, request := p.tracer.Start(t.Context(), "request")
	require.NoError(t, p.guard.Do(ctx, key, func(ctx context.Context) error {
		token = p.token(t, key)
		lease, _ := guard.FromContext(ctx)
		require.NoError(t, lease.SetRecord([]byte("secret answer")))
		if p.hook {
			<-p.renews // at a third of the TTL
			return nil
		}
		awaitClients(t, p, 2) // acquire and a renewal
		return nil
	}, guard.WithOnce(time.Minute)))
	request.End()
	want := 2 // acquire and release
	if !p.hook {
		want++ // and a renewal
	}
	awaitClients(t, p, want)
	for _, s := range p.spans.GetSpans() {
		if s.SpanContext.TraceID() == request.SpanContext().TraceID() {
			below = append(below, s)
		} else {
			roots = append(roots, s)
		}
	}
	return below, roots, token
}

// token returns the ID of the lease that is held on the key: the store has it behind a letter,
// before a newline.
func (p *pair) token(t *testing.T, key string) string {
	t.Helper()
	keys, err := p.peek.Keys(t.Context(), "*"+key+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	value, err := p.peek.Get(t.Context(), keys[0]).Result()
	require.NoError(t, err)
	id, _, found := strings.Cut(value[1:], "\n")
	require.True(t, found, value)
	return id
}

// awaitClients waits for so many spans of scripts. That of a batch ends a moment after its callers
// have their answers.
func awaitClients(t *testing.T, p *pair, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return len(clients(p.spans.GetSpans())) >= n }, time.Minute, time.Millisecond)
}

// clients returns the spans of redisotel that call a script.
func clients(spans tracetest.SpanStubs) (of tracetest.SpanStubs) {
	for _, s := range spans {
		if s.SpanKind == trace.SpanKindClient && strings.Contains(s.Name, "evalsha") {
			of = append(of, s)
		}
	}
	return of
}

func TestRedisotel_makesATraceOfEachRenewalWithoutOurHook(t *testing.T) {
	t.Parallel()
	below, roots, _ := newPair(t, false).request(t, "k")
	renewals := clients(roots)
	require.NotEmpty(t, renewals)
	for _, s := range renewals {
		require.False(t, s.Parent.IsValid())
	}
	require.Len(t, clients(below), 2, "acquire and release")
	t.Logf("%d renewals are traces of their own", len(renewals))
}

func TestRedisotel_hasNoSpanOfARenewalBesideOurHook(t *testing.T) {
	t.Parallel()
	below, roots, _ := newPair(t, true).request(t, "k")
	require.Empty(t, roots)
	require.Len(t, clients(below), 2, "acquire and release")
	for _, s := range below {
		if s.Name == "run work" {
			for _, a := range s.Attributes {
				if a.Key == "onerun.renewals" {
					require.Positive(t, a.Value.AsInt64())
					return
				}
			}
		}
	}
	t.Fatal("the run does not say how often it was renewed")
}

func TestRedisotel_putsAcquireBelowOursAndReleaseBelowTheCaller(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	ctx, request := p.tracer.Start(t.Context(), "request")
	require.NoError(t, p.guard.Do(ctx, "k", func(context.Context) error { return nil }))
	request.End()
	named := map[trace.SpanID]string{}
	for _, s := range p.spans.GetSpans() {
		named[s.SpanContext.SpanID()] = s.Name
	}
	var parents []string
	for _, s := range clients(p.spans.GetSpans()) {
		parents = append(parents, named[s.Parent.SpanID()])
	}
	require.Equal(t, []string{"acquire work", "request"}, parents)
}

func TestRedisotel_showsKeysTokensAndRecordsUnlessStatementsAreOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		opts  []redisotel.TracingOption
		shown bool
	}{
		{"by default", nil, true},
		{"without statements", []redisotel.TracingOption{redisotel.WithDBStatement(false)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			below, roots, token := newPair(t, true, c.opts...).request(t, "secret-key")
			require.NotEmpty(t, token)
			require.NotEmpty(t, clients(below))
			var text strings.Builder
			for _, s := range append(below, roots...) {
				for _, a := range s.Attributes {
					text.WriteString(string(a.Key) + "=" + a.Value.String() + "\n")
				}
			}
			for _, secret := range []string{"secret-key", token, "secret answer"} {
				require.Equal(t, c.shown, strings.Contains(text.String(), secret), secret)
			}
		})
	}
}

// Claims that travel together are one command span, below the first of them.
func TestRedisotel_showsABatchBelowOneOfItsCallers(t *testing.T) {
	t.Parallel()
	p := newPair(t, true)
	const callers = 200
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			ctx, request := p.tracer.Start(t.Context(), "request")
			defer request.End()
			assert.NoError(t, p.guard.Do(ctx, fmt.Sprint("k", i), func(context.Context) error { return nil }, guard.WithTTL(time.Minute)))
		})
	}
	all.Wait()
	known := map[trace.SpanID]string{}
	for _, s := range p.spans.GetSpans() {
		known[s.SpanContext.SpanID()] = s.Name
	}
	of := clients(p.spans.GetSpans())
	for _, s := range of {
		require.Contains(t, []string{"acquire work", "request"}, known[s.Parent.SpanID()])
	}
	require.Less(t, len(of), 2*callers)
	t.Logf("%d claims and releases are %d command spans", 2*callers, len(of))
}
