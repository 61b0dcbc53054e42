package history_test

import (
	"bytes"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/backend/memory"
	"github.com/seed-1795987d/onerun/guard"
	"github.com/seed-1795987d/onerun/guard/driver"
	"github.com/seed-1795987d/onerun/internal/verify/history"
)

// believed is a belief from an instant to another, in ms.
func believed(process string, number, from, to int, fence uint64) history.Event {
	e := op(history.Belief, "c"+process, from, to, "", fence)
	e.Process, e.Number, e.Reason = process, number, "released"
	return e
}

func TestOverlaps_areBeliefsThatWereLiveAtOnce(t *testing.T) {
	require.Empty(t, history.Overlaps([]history.Event{believed("p", 1, 0, 10, 1), believed("q", 1, 10, 20, 2), believed("p", 2, 30, 40, 3)}))
	found := history.Overlaps([]history.Event{believed("p", 1, 0, 100, 1), believed("q", 1, 10, 20, 2), believed("q", 2, 70, 130, 3)})
	require.Len(t, found, 2, "the longest of those before counts")
	require.Equal(t, 10*time.Millisecond, found[0].For)
	require.Equal(t, 30*time.Millisecond, found[1].For)
}

func TestOverlaps_aBeliefEndsWhenValidSaysNo(t *testing.T) {
	paused := believed("p", 1, 0, 100, 1)
	paused.Reason, paused.Late = "expired", 60*time.Millisecond
	require.Empty(t, history.Overlaps([]history.Event{paused, believed("q", 1, 41, 60, 2)}))
	require.Len(t, history.Overlaps([]history.Event{paused, believed("q", 1, 39, 60, 2)}), 1)
}

func TestOverlaps_aBeliefOfAKilledProcessEndsWithIt(t *testing.T) {
	cut := unfinished(believed("p", 1, 0, 0, 1))
	killed := op(history.Killed, "", 50, 0, "", 0)
	killed.Process = "p"
	require.Empty(t, history.Overlaps([]history.Event{cut, killed, believed("q", 1, 60, 70, 2)}))
	require.Len(t, history.Overlaps([]history.Event{cut, believed("q", 1, 60, 70, 2)}), 1, "who was not killed still believes")
}

func write(holder string, at int, outcome history.Outcome, fence uint64) history.Event {
	e := op(history.Write, "", at, at, outcome, fence)
	e.Holder = holder
	return e
}

func read(holder string, at int, outcome history.Outcome, fence uint64) history.Event {
	e := write(holder, at, outcome, fence)
	e.Kind = history.Register
	return e
}

func TestJudgeWrites_countsWhatWasStale(t *testing.T) {
	w := history.JudgeWrites([]history.Event{
		believed("p", 1, 0, 10, 1), believed("q", 1, 20, 30, 2),
		write("p#1", 5, history.OK, 1), write("p#1", 6, history.OK, 1), write("q#1", 25, history.OK, 2), write("p#1", 26, history.Refused, 1),
	})
	require.Equal(t, 4, w.Offered)
	require.Equal(t, 1, w.Refused)
	require.Zero(t, w.StaleAccepted)
	require.Empty(t, w.Faults)
}

func TestJudgeWrites_findsWhatMustNotBe(t *testing.T) {
	for name, c := range map[string]struct {
		events          []history.Event
		stale, wrongful int
	}{
		"a lower fence is accepted":         {[]history.Event{write("q#1", 1, history.OK, 2), write("p#1", 2, history.OK, 1)}, 1, 0},
		"a lower fence writes after a read": {[]history.Event{read("q#1", 1, history.OK, 2), write("p#1", 2, history.OK, 1)}, 1, 0},
		"a lower fence reads":               {[]history.Event{write("q#1", 1, history.OK, 2), read("p#1", 2, history.OK, 1)}, 1, 0},
		"two holders have one fence":        {[]history.Event{write("q#1", 1, history.OK, 2), write("p#1", 2, history.OK, 2)}, 1, 0},
		"a fence is refused for no reason":  {[]history.Event{write("q#1", 1, history.OK, 1), write("p#1", 2, history.Refused, 2)}, 0, 1},
		"the only one who holds is refused": {[]history.Event{believed("p", 1, 0, 9, 1), write("q#1", 1, history.OK, 2), write("p#1", 2, history.Refused, 1)}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := history.JudgeWrites(c.events)
			require.Equal(t, c.stale, w.StaleAccepted)
			require.Len(t, w.Wronged, c.wrongful)
			require.Len(t, w.Faults, 1)
		})
	}
}

func TestLate_isNetOfStalls(t *testing.T) {
	late := believed("p", 1, 0, 150, 1)
	late.Reason, late.Deadline = "expired", late.Call+100*int64(time.Millisecond)
	stall := func(kind history.Kind, from, to int, waited time.Duration) history.Event {
		e := op(kind, "", from, to, "", 0)
		e.Process, e.Late = "p", waited
		return e
	}
	for name, c := range map[string]struct {
		stalls []history.Event
		net    int // ms
	}{
		"none":             {nil, 50},
		"before it":        {[]history.Event{stall(history.Stall, 0, 100, 0)}, 50},
		"half of it":       {[]history.Event{stall(history.Stall, 90, 125, 0)}, 25},
		"seen twice":       {[]history.Event{stall(history.Stall, 100, 125, 0), stall(history.Stall, 101, 125, 0)}, 25},
		"a waiting thread": {[]history.Event{stall(history.Starved, 90, 160, 20*time.Millisecond)}, 30},
	} {
		t.Run(name, func(t *testing.T) {
			all := history.Late(append(c.stalls, late))
			require.Equal(t, []history.Lateness{{Gross: 50 * time.Millisecond, Net: time.Duration(c.net) * time.Millisecond}}, all)
		})
	}
}

func TestRead_leavesOutWhatWasNotFinished(t *testing.T) {
	var file bytes.Buffer
	log := history.NewLog("p", &file)
	log.End(log.Begin(history.Event{Kind: history.Acquire, Key: "k"}))
	log.Begin(history.Event{Kind: history.Renew, Key: "k"})
	events, err := history.Read(strings.NewReader(file.String() + `{"p":"p","n":`))
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.NotZero(t, events[0].Return)
	require.Zero(t, events[1].Return)
	_, err = history.Read(strings.NewReader("nonsense\n"))
	require.Error(t, err)
}

func TestResource_registersTheFenceOfARead(t *testing.T) {
	var decided bytes.Buffer
	resource := history.NewResource(history.NewLog("resource", &decided))
	require.Equal(t, history.OK, resource.Offer(read("p#1", 0, "", 1)))
	require.Equal(t, history.OK, resource.Offer(read("q#1", 0, "", 2)))
	require.Equal(t, history.Refused, resource.Offer(write("p#1", 0, "", 1)), "it would be lost")
	require.Equal(t, history.OK, resource.Offer(write("q#1", 0, "", 2)))
	require.Equal(t, history.Refused, resource.Offer(read("p#1", 0, "", 1)))

	decisions, err := history.Read(&decided)
	require.NoError(t, err)
	w := history.JudgeWrites(decisions)
	require.Equal(t, 5, w.Offered)
	require.Equal(t, 2, w.Refused)
	require.Empty(t, w.Faults)
}

// The whole of it, in one process: calls, beliefs, writes, and the three checks.
func TestRecord_makesAHistoryOfWhatAGuardDoes(t *testing.T) {
	var file, decided bytes.Buffer
	log, resource := history.NewLog("p", &file), history.NewLog("resource", &decided)
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- history.NewResource(resource).Serve(listener) }()
	client, err := history.Dial(t.Context(), socket)
	require.NoError(t, err)

	store := log.Record(memory.New())
	g, err := guard.New(store, guard.WithTTL(time.Second))
	require.NoError(t, err)
	for range 3 {
		since := history.Now()
		lease, err := g.Acquire(t.Context(), "k")
		require.NoError(t, err)
		belief := log.Believe(lease, "k", time.Second, since)
		for _, offer := range []func(*history.Believer) (bool, error){client.Read, client.Write} {
			accepted, err := offer(belief)
			require.NoError(t, err)
			require.True(t, accepted)
		}
		belief.End()
		require.NoError(t, lease.Release(t.Context()))
		belief.Wait()
	}
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, client.Close())
	require.NoError(t, listener.Close())
	require.Error(t, <-served)
	require.NoError(t, log.Err())

	events, err := history.Read(&file)
	require.NoError(t, err)
	decisions, err := history.Read(&decided)
	require.NoError(t, err)
	events = append(events, decisions...)
	require.Len(t, history.Beliefs(events), 3)
	require.Empty(t, history.Overlaps(events))
	require.Equal(t, 6, history.JudgeWrites(events).Offered)
	require.Empty(t, history.JudgeWrites(events).Faults)
	require.True(t, history.Linearizable(events, 10*time.Second).OK())
	for _, belief := range history.Beliefs(events) {
		require.NotEmpty(t, belief.Claim)
		require.Greater(t, belief.Deadline, belief.Return)
	}
	require.True(t, driver.Describe(store).Queue, "the abilities of the store are found through it")
}
