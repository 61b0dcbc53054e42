package guardcron_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	guardcron "github.com/seed-1795987d/onerun/middleware/cron"
)

// procWrite is the resource. KEYS: the highest fence seen of each job, the log. ARGV: the event,
// its job, its fence, 1 if it is a write of a run. Answers 1, or 0 if it refuses the write because
// of its fence. The log has the resource's clock, and not those of the processes.
var procWrite = redis.NewScript(`
local event, now = cjson.decode(ARGV[1]), redis.call('TIME')
event.At = now[1] * 1000 + math.floor(now[2] / 1000)
if ARGV[4] == '1' then
  event.Refused = tonumber(ARGV[3]) < tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '0')
  if not event.Refused then
    redis.call('HSET', KEYS[1], ARGV[2], ARGV[3])
  end
end
redis.call('RPUSH', KEYS[2], cjson.encode(event))
return event.Refused and 0 or 1`)

// A procEvent is a line of the log: what a run writes (begin, end, failed, broken), what the
// package reports (record, missed, here), what befalls a process (dies, freezes), or a lease of
// its (kept: it could not be released).
type procEvent struct {
	Kind    string
	At      int64 // milliseconds, by the resource's clock
	Job     string
	Tick    int64
	Who     string
	Fence   uint64 `json:",string"` // which the JSON of Lua would round
	Result  string
	Reason  string
	Refused bool
	Takes   int64 // how long the work of a run takes, in milliseconds
}

var errProcRefused = errors.New("the resource has seen a newer fence")

type procLog struct{ rdb redis.UniversalClient }

func (l *procLog) write(e procEvent) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	write := slices.Contains([]string{"begin", "end", "failed", "broken"}, e.Kind)
	taken, err := procWrite.Run(context.Background(), l.rdb, []string{"fences", "log"}, text, e.Job, e.Fence, write).Int()
	if err == nil && taken == 0 {
		return errProcRefused
	}
	return err
}

func (l *procLog) read(t *testing.T) (events procEvents) {
	t.Helper()
	lines, err := l.rdb.LRange(context.Background(), "log", 0, -1).Result()
	require.NoError(t, err)
	for _, line := range lines {
		var e procEvent
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		events = append(events, e)
	}
	return events
}

// procSoon is for what happens in a second or so, on a machine that is busy with something else.
const procSoon = 40 * time.Second

// await polls the log until something is in it, and returns that.
func (l *procLog) await(t *testing.T, what string, is func(e procEvent) bool) procEvent {
	t.Helper()
	return l.awaitAfter(t, 0, what, is)
}

// awaitAfter is await without the oldest lines.
func (l *procLog) awaitAfter(t *testing.T, lines int, what string, is func(e procEvent) bool) procEvent {
	t.Helper()
	for over := time.Now().Add(procSoon); time.Now().Before(over); {
		for _, e := range l.read(t)[lines:] {
			if is(e) {
				return e
			}
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	var all strings.Builder
	for _, e := range l.read(t) {
		fmt.Fprintf(&all, "\n%+v", e)
	}
	require.FailNow(t, "not in the log: "+what, "%s", all.String())
	return procEvent{}
}

// writeFor writes to the log what a dead process has left in the store without a line in the log.
// A process that is killed after it has recorded a failed or skipped tick may not have called its
// observer yet.
func (l *procLog) writeFor(t *testing.T, order procOrder, dead string, jobs []procJob) {
	t.Helper()
	w, err := newProcWorker(order.as("reader", 0))
	require.NoError(t, err)
	defer func() { require.NoError(t, w.close(procSoon)) }()
	events := l.read(t)
	for _, j := range jobs {
		records, err := w.jobs.Records(context.Background(), j.Name, 1500)
		require.NoError(t, err)
		for _, r := range records {
			logged := slices.ContainsFunc(events.of(j.Name, r.Tick.UnixMilli(), "record", "here"), func(e procEvent) bool {
				return e.Who == dead && e.Result == string(r.Result)
			})
			if r.Who == dead && r.Reason != "" && !logged {
				w.order.Who = dead
				w.report("record", r)
			}
		}
	}
}

type procEvents []procEvent

// of returns those of a job and a tick that are of one of the kinds. A tick of 0 is any.
func (events procEvents) of(job string, tick int64, kinds ...string) (found procEvents) {
	for _, e := range events {
		if e.Job == job && (tick == 0 || e.Tick == tick) && slices.Contains(kinds, e.Kind) {
			found = append(found, e)
		}
	}
	return found
}

// ran returns the runs of a tick that the resource took for finished, without those that their own
// process knows to be lost.
func (events procEvents) ran(job string, tick int64) (found procEvents) {
	for _, e := range events.of(job, tick, "end") {
		lost := slices.ContainsFunc(events.of(job, tick, "record"), func(r procEvent) bool { return r.Result == string(guardcron.Lost) && r.Fence == e.Fence })
		if !e.Refused && !lost {
			found = append(found, e)
		}
	}
	return found
}

// left returns what was reported of a tick other than a run to its end.
func (events procEvents) left(job string, tick int64) (found procEvents) {
	for _, e := range events.of(job, tick, "record") {
		if e.Result != string(guardcron.Ran) && e.Reason != "" {
			found = append(found, e)
		}
	}
	return found
}

// requireNoTwo fails if a run of the job begins while another one is active: begun, and neither
// ended nor deprived of its lease.
func (events procEvents) requireNoTwo(t *testing.T, job string) {
	t.Helper()
	type run struct{ from, to procEvent }
	var runs []run
	for i, from := range events {
		if from.Job != job || from.Kind != "begin" || from.Refused {
			continue
		}
		// A process that dies or freezes keeps its lease for up to a TTL.
		at := slices.IndexFunc(events[i:], func(e procEvent) bool {
			halted := e.Who == from.Who && (e.Kind == "dies" || e.Kind == "freezes")
			return halted || e.Job == job && e.Fence == from.Fence && slices.Contains([]string{"end", "failed", "broken"}, e.Kind)
		})
		require.GreaterOrEqual(t, at, 0, "run without an end: %+v", from)
		to := events[i+at]
		// Its process was not run in time to notice that it had lost its lease.
		starved := to.Refused && to.At-from.At > to.Takes+1000
		if starved || to.Kind == "broken" && !slices.ContainsFunc(events.of(job, from.Tick, "record"), func(r procEvent) bool { return r.Fence == from.Fence && r.Result == string(guardcron.Failed) }) {
			to = from // when it lost its lease is not known
		}
		runs = append(runs, run{from, to})
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(a.from.At, b.from.At) })
	for i := 1; i < len(runs); i++ {
		require.GreaterOrEqual(t, runs[i].from.At, runs[i-1].to.At, "overlap: %+v and %+v", runs[i-1], runs[i])
		require.Greater(t, runs[i].from.Fence, runs[i-1].from.Fence)
	}
}

// requireTick fails unless a tick was run to its end once, or is reported with a reason.
func (events procEvents) requireTick(t *testing.T, job string, tick int64) {
	t.Helper()
	at := fmt.Sprint(job, " at ", time.UnixMilli(tick).UTC().Format("15:04:05"))
	ran, left := events.ran(job, tick), events.left(job, tick)
	require.LessOrEqual(t, len(ran), 1, "twice: %s: %+v", at, ran)
	require.NotEmpty(t, append(left, ran...), "neither run nor reported: %s: %+v", at, events.of(job, tick, "begin", "end", "failed", "broken", "record", "here"))
	require.LessOrEqual(t, len(events.missed(job, tick)), 1, "missed twice: %s: %+v", at, events.of(job, tick, "missed", "kept"))
}

// missed returns the reports of a tick as missed, without those of a process that could not leave
// the tick done: another one reports it again then. A report of several ticks has the fence of the
// last one's lease.
func (events procEvents) missed(job string, tick int64) procEvents {
	kept := events.of(job, tick, "kept")
	return slices.DeleteFunc(events.of(job, tick, "missed"), func(e procEvent) bool {
		return slices.ContainsFunc(kept, func(k procEvent) bool { return k.Who == e.Who && k.At >= e.At })
	})
}

// settled reports whether the log has the outcome of a tick.
func (events procEvents) settled(job string, tick int64) bool {
	return len(events.ran(job, tick))+len(events.left(job, tick)) > 0
}

// requireRecords fails unless the records of the store agree with the log about a tick.
func (events procEvents) requireRecords(t *testing.T, records []guardcron.Record, job string, tick int64) {
	t.Helper()
	var ran []procEvent
	outcomes := map[string]bool{}
	for _, r := range records {
		if !ticksOf(r)[tick] {
			continue
		}
		outcomes[string(r.Result)] = true
		if r.Result == guardcron.Ran {
			ran = append(ran, procEvent{Who: r.Who, Fence: r.Fence})
		}
	}
	var done []procEvent
	for _, e := range events.ran(job, tick) {
		done = append(done, procEvent{Who: e.Who, Fence: e.Fence})
	}
	at := fmt.Sprint(job, " at ", time.UnixMilli(tick).UTC().Format("15:04:05"))
	require.Equal(t, done, ran, at)
	for _, e := range events.left(job, tick) {
		require.True(t, outcomes[e.Result], "not on record: %s: %+v", at, e)
	}
}

// ticksOf returns the ticks of a record of a job that is due each second, in milliseconds.
func ticksOf(r guardcron.Record) map[int64]bool {
	ticks := map[int64]bool{r.Tick.UnixMilli(): true}
	for at := r.Tick; at.Before(r.Until); {
		at = at.Add(time.Second)
		ticks[at.UnixMilli()] = true
	}
	return ticks
}
