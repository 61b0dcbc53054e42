//go:build trace

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/verify/demo/spans"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage/stagetest"
)

// traces are the spans of a file, by what one looks for.
type traces []spans.Span

func readTraces(t *testing.T, file string) traces {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	all, err := spans.Read(bytes.NewReader(text))
	require.NoError(t, err)
	return all
}

func (all traces) find(is func(spans.Span) bool) (found traces) {
	for _, s := range all {
		if is(s) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b spans.Span) int { return a.Start.Compare(b.Start) })
	return found
}

// requests returns the spans of those that were answered with the status.
func (all traces) requests(status int) traces {
	return all.find(func(s spans.Span) bool {
		return s.Name == "POST /claim/{user}" && s.Attributes["http.response.status_code"] == fmt.Sprint(status)
	})
}

// below returns the one span of that name right below the parent.
func (all traces) below(t *testing.T, parent spans.Span, name string) spans.Span {
	t.Helper()
	found := all.find(func(s spans.Span) bool { return s.Name == name && s.Trace == parent.Trace && s.Parent == parent.ID })
	require.Len(t, found, 1, "%s below %s", name, parent.Name)
	return found[0]
}

// requireLink fails unless the one link of from leads to the span to.
func requireLink(t *testing.T, from, to spans.Span, how string) {
	t.Helper()
	require.Equal(t, []spans.Link{{Trace: to.Trace, ID: to.ID, Attributes: map[string]string{"onerun.link": how}}}, from.Links)
}

// scrape returns the page of metrics.
func scrape(t *testing.T, url string) string {
	t.Helper()
	response, err := client.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return string(text)
}

const metricsAt = `has its metrics at (http://127\.0\.0\.1:\d+/metrics)`

// logLines returns what the program has logged.
func logLines(printed string) string {
	return strings.Join(regexp.MustCompile(`(?m)^\{"time":.*$`).FindAllString(printed, -1), "\n")
}

func TestTrace_showsWhatBecameOfEachRequest(t *testing.T) {
	t.Parallel()
	const user, key = "alice-of-the-test", "k1-of-the-test"
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	// as it has the most to tell: of its nodes, too
	program, url := serve(t, "-backend", "redlock", "-trace", "-trace-file", file)
	metrics := program.Find(metricsAt)

	// A claim that takes longer than a third of its lease, another user who waits for the stock
	// meanwhile, a second click, and a third when the first has its answer.
	first := make(chan reply, 2)
	claim := func(user string) {
		r, _ := curl(url, user, key, `{"size":"M","think":"1s"}`)
		first <- r
	}
	go claim(user)
	requireHeld(t, metrics)
	go claim("bob")
	require.Equal(t, http.StatusConflict, mustCurl(t, url, user, key, `{"size":"M","think":"1s"}`).Status)
	require.Equal(t, http.StatusOK, (<-first).Status)
	require.Equal(t, "true", mustCurl(t, url, user, key, `{"size":"M","think":"1s"}`).Replayed)
	require.Equal(t, http.StatusOK, (<-first).Status)
	page := scrape(t, metrics)
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())

	all := readTraces(t, file)
	require.Empty(t, all.find(func(s spans.Span) bool { return s.Failed }))
	require.Len(t, all.requests(http.StatusOK), 3)
	ran, bob, replayed := all.requests(http.StatusOK)[0], all.requests(http.StatusOK)[1], all.requests(http.StatusOK)[2]
	if len(all.find(func(s spans.Span) bool { return s.Trace == bob.Trace })) == 2 {
		bob, replayed = replayed, bob
	}
	refused := all.requests(http.StatusConflict)[0]
	run := all.below(t, ran, "run claim")
	require.Equal(t, "acquired", all.below(t, ran, "acquire claim").Attributes["onerun.result"])
	require.Equal(t, "ok", all.below(t, run, "run stock").Attributes["onerun.result"])
	all.below(t, run, "release stock")
	all.below(t, ran, "release claim")
	busy, done := all.below(t, refused, "acquire claim"), all.below(t, replayed, "acquire claim")
	require.Equal(t, "busy", busy.Attributes["onerun.result"])
	requireLink(t, busy, all.below(t, ran, "acquire claim"), "holder")
	require.Equal(t, "done", done.Attributes["onerun.result"])
	requireLink(t, done, run, "finished")
	waited := all.below(t, all.below(t, bob, "run claim"), "acquire stock")
	require.NotEmpty(t, waited.Attributes["onerun.wait_time"])

	requireMetrics(t, page)
	logged := logLines(program.Printed())
	require.Contains(t, logged, `"msg":"duplicate skipped"`)
	require.Contains(t, logged, `"holder_trace_id":"`+ran.Trace+`"`)
	spans, err := os.ReadFile(file)
	require.NoError(t, err)
	for what, text := range map[string]string{"spans": string(spans), "metrics": page, "log": logged} {
		for _, secret := range []string{user, key, "bob", coupon, stockKey} {
			require.NotContains(t, text, secret, what)
		}
	}
}

// requireHeld waits until a server holds the stock, as its metrics say.
func requireHeld(t *testing.T, metrics string) {
	t.Helper()
	held := regexp.MustCompile(`(?m)^onerun_lease_active\{.*onerun_max_holders="1".*onerun_name="stock".*\} 1$`)
	require.Eventually(t, func() bool { return held.MatchString(scrape(t, metrics)) }, 10*time.Second, 5*time.Millisecond)
}

// requireMetrics fails if the page has a name that deploy/metrics.md does not have, or lacks one
// of what has happened.
func requireMetrics(t *testing.T, page string) {
	t.Helper()
	nothing := []string{
		"onerun_acquire_unknown_total", "onerun_deadline_lateness_seconds", "onerun_leader_absence_seconds_total", "onerun_leader_leading",
		"onerun_leader_terms_total", "onerun_run_expected_interval_seconds", "onerun_waiter_missed_wakeups_total",
	}
	text, err := os.ReadFile("../../../../deploy/metrics.md")
	require.NoError(t, err)
	names := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return all
	}
	known, have := names("(?m)^\\|[^|]*\\|[^|]*\\|[^|]*\\| `(onerun_\\w+)` \\|", string(text)), names(`(?m)^# TYPE (onerun_\w+) `, page)
	require.Subset(t, known, have)
	for _, name := range have {
		known = slices.DeleteFunc(known, func(k string) bool { return k == name })
	}
	require.Equal(t, nothing, known, "only what has not happened is missing")
	require.Regexp(t, `(?m)^onerun_adapter_outcomes_total\{.*onerun_result="replayed".*\} 1$`, page)
}

func TestWeekly_traceShowsTheWholeCrowd(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	code, printed := stagetest.Run(t, "-trace", "-trace-file", file)
	require.Zero(t, code)
	require.Len(t, regexp.MustCompile(metricsAt).FindAllString(printed, -1), servers)
	require.Contains(t, printed, "The promise was kept.")
	require.Contains(t, logLines(printed), `"msg":"lease lost"`, "of the server that was frozen")

	all := readTraces(t, file)
	acquires := map[string]int{}
	for _, s := range all {
		if s.Name == "acquire claim" {
			acquires[s.Parent]++
		}
	}
	roots := all.find(func(s spans.Span) bool { return s.Kind == 2 })
	require.GreaterOrEqual(t, len(roots), users+eager)
	where := map[string]bool{}
	for _, s := range roots {
		require.Equal(t, 1, acquires[s.ID])
		where[s.Where] = true
	}
	require.Len(t, where, servers)
	finished := 0
	for _, s := range all {
		for _, l := range s.Links {
			require.NotEqual(t, s.Trace, l.Trace)
			if l.Attributes["onerun.link"] == "finished" {
				finished++
				require.Len(t, all.find(func(o spans.Span) bool { return o.ID == l.ID && o.Trace == l.Trace && o.Name == "run claim" }), 1)
			}
		}
	}
	require.Positive(t, finished)
}

func TestTrace_worksWithoutTheGuard(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "spans.jsonl")
	program, url := serve(t, "-guard=off", "-trace", "-trace-file", file)
	require.Equal(t, http.StatusOK, mustCurl(t, url, "alice", "", `{"size":"M"}`).Status)
	require.Contains(t, scrape(t, program.Find(metricsAt)), "onerun_lease_active")
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())
	all := readTraces(t, file)
	require.Len(t, all, 1)
	require.Len(t, all.requests(http.StatusOK), 1)
}

func TestTrace_printsSpansWithoutAFile(t *testing.T) {
	t.Parallel()
	program, url := serve(t, "-trace")
	require.Equal(t, http.StatusOK, mustCurl(t, url, "alice", "k1", `{"size":"M"}`).Status)
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())
	lines := regexp.MustCompile(`(?m)^\{"Name":.*$`).FindAllString(program.Printed(), -1)
	require.Len(t, lines, 7)
	_, err := spans.Read(strings.NewReader(strings.Join(lines, "\n")))
	require.NoError(t, err)
}

func TestTrace_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	nowhere := filepath.Join(t.TempDir(), "nowhere", "spans.jsonl")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-trace-file", "x"}, "coupon: -trace-file x is of no effect without -trace"},
		{[]string{"-metrics", "127.0.0.1:0"}, "coupon: -metrics 127.0.0.1:0 is of no effect without -trace"},
		{[]string{"-trace", "-trace-file", ""}, `invalid value "" for flag -trace-file: must name a file`},
		{[]string{"-trace", "-trace-file", nowhere}, "coupon: -trace-file: open " + nowhere},
		{[]string{"-trace", "-metrics", "9464"}, `invalid value "9464" for flag -metrics: address 9464: missing port in address`},
		{[]string{"-trace", "-metrics", "127.0.0.1:http"}, `invalid value "127.0.0.1:http" for flag -metrics: must end in the number of a port`},
		{[]string{"-trace", "-metrics", "127.0.0.1:65536"}, `for flag -metrics: must end in the number of a port`},
		{[]string{"-trace", "-metrics", ":9464"}, `invalid value ":9464" for flag -metrics: must be on loopback`},
		{[]string{"-trace", "-metrics", "0.0.0.0:9464"}, `for flag -metrics: must be on loopback`},
		{[]string{"-trace", "-metrics", "example.org:9464"}, `for flag -metrics: must be on loopback`},
		{[]string{"-trace", "-metrics", taken.Addr().String()}, "server 1: -metrics: listen tcp " + taken.Addr().String()},
	} {
		code, printed := stagetest.Run(t, append(c.args, "-serve", "127.0.0.1:0")...)
		require.Equal(t, 2, code, c.args)
		require.Contains(t, printed, c.says)
		require.NotContains(t, printed, "serves at")
	}
}

func TestTrace_saysOnceThatTheFileCannotBeWritten(t *testing.T) {
	t.Parallel()
	program, url := serve(t, "-trace", "-trace-file", "/dev/full")
	require.Equal(t, http.StatusOK, mustCurl(t, url, "alice", "k1", `{"size":"M"}`).Status)
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())
	require.Equal(t, 1, strings.Count(program.Printed(), "coupon: -trace-file: write /dev/full: "))
}

func TestSettings_givesEachServerAPortOfItsOwn(t *testing.T) {
	t.Parallel()
	require.Nil(t, (&traceFlags{}).settings(0, false))
	for metrics, want := range map[string]string{"": "127.0.0.1:0", "127.0.0.1:0": "127.0.0.1:0", "[::1]:9464": "[::1]:9466"} {
		f := traceFlags{on: true, metrics: metrics}
		require.Equal(t, &telemetrySettings{Metrics: want}, f.settings(2, false))
	}
}

// Not parallel: what others start is not to be taken for left behind.
func TestTelemetry_leavesNothingBehind(t *testing.T) {
	before := goleak.IgnoreCurrent()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var lines, logged bytes.Buffer
	tell, err := newTelemetry("server 1", &lines, slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})), listener)
	require.NoError(t, err)
	g, err := guard.New(memory.New(), guard.WithHook(tell.hook), guard.WithHook(tell.log))
	require.NoError(t, err)
	require.NoError(t, g.Do(t.Context(), "k", func(context.Context) error { return nil }, guard.WithName(nameStock)))
	require.NoError(t, g.Close(t.Context()))
	require.Contains(t, scrape(t, "http://"+listener.Addr().String()+"/metrics"), "onerun_lease_active")
	client.CloseIdleConnections()
	require.NoError(t, tell.close())
	all, err := spans.Read(&lines)
	require.NoError(t, err)
	require.Len(t, all, 3, "all are written when it is closed")
	require.Contains(t, logged.String(), "lease released")
	goleak.VerifyNone(t, before)
}
