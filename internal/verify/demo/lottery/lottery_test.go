package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/leftout"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
	"github.com/seed-1795987d/onerun/internal/verify/demo/stage/stagetest"
)

func TestMain(m *testing.M) { stagetest.Main(m, main) }

// result is what the database has of a round.
type result struct {
	round, draws, winners, replicas int
}

// requireBooks returns all that the database has.
func requireBooks(t *testing.T, db *stage.Database) books {
	t.Helper()
	b, err := database{db}.books(t.Context())
	require.NoError(t, err)
	return b
}

// results counts them without the program's own table.
func results(t *testing.T, db *stage.Database) (all []result) {
	t.Helper()
	b := requireBooks(t, db)
	for round := 1; round <= 3; round++ {
		r, drew, replicas := result{round: round}, map[string]bool{}, map[string]bool{}
		key := func(replica string, fence uint64) string { return fmt.Sprint(replica, " ", fence) }
		for _, d := range b.draws {
			if d.Round == round {
				r.draws++
				drew[key(d.Replica, d.Fence)] = true
			}
		}
		for _, w := range b.winners {
			if w.Round == round {
				replicas[w.Replica] = true
				if drew[key(w.Replica, w.Fence)] {
					r.winners++
				}
			}
		}
		r.replicas = len(replicas)
		all = append(all, r)
	}
	return all
}

// drawn returns who has drawn each round, and under which fence, as the database has it.
func drawn(t *testing.T, db *stage.Database) (all []string) {
	t.Helper()
	for _, d := range requireBooks(t, db).draws {
		all = append(all, fmt.Sprintf("%d by %s under fence %d", d.Round, d.Replica, d.Fence))
	}
	slices.Sort(all)
	return all
}

// recorded returns the same of the records with the outcome, as they were printed.
func recorded(t *testing.T, printed, outcome string) []string {
	t.Helper()
	name := map[string]string{}
	for _, replica := range regexp.MustCompile(`(replica \d) +is pid (\d+),`).FindAllStringSubmatch(printed, -1) {
		name[replica[2]] = replica[1]
	}
	require.Len(t, name, 5)
	var all []string
	records := regexp.MustCompile(`on record +round (\d), of [\d:]{8}: ` + outcome + `, by .* pid (\d+), under fence (\d+)`)
	for _, record := range records.FindAllStringSubmatch(printed, -1) {
		all = append(all, record[1]+" by "+name[record[2]]+" under fence "+record[3])
	}
	return all
}

func TestUI_showsTheDrawAndItsTicks(t *testing.T) {
	t.Parallel()
	program := stagetest.Start(t, "-ui", "127.0.0.1:0")
	program.AwaitPage("/", ">held<", "draw")
	program.AwaitPage("/job?name=draw", `class="ran"`)
	program.Signal(os.Interrupt)
	require.Equal(t, 130, program.Wait())
}

func TestLottery_drawsEachRoundOnce(t *testing.T) { stagetest.OnOneBackend(t, drawsEachRoundOnce) }

func TestWeekly_lotteryDrawsEachRoundOnceOnEachBackend(t *testing.T) {
	leftout.IfShort(t)
	stagetest.OnEachBackend(t, drawsEachRoundOnce)
}

func drawsEachRoundOnce(t *testing.T, args ...string) {
	file, open := stagetest.Database(t)
	code, printed := stagetest.Run(t, append(args, "-db", file)...)
	require.Zero(t, code)
	db := open()
	require.Equal(t, []result{{1, 1, 10, 1}, {2, 1, 10, 1}, {3, 1, 10, 1}}, results(t, db))
	skips := regexp.MustCompile(`round \d: skips, after .* another one has drawn it`)
	require.Len(t, skips.FindAllString(printed, -1), 3*4, "four replicas are fired in each round, and skip it")
	require.Equal(t, drawn(t, db), recorded(t, printed, "ran"))
	require.Empty(t, recorded(t, printed, "running"))
	require.Contains(t, printed, "The promise was kept.")
}

func TestWeekly_lotteryDrawsEachRoundOnceAgainOnARedisThatIsUsedAgain(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	addr := redistest.Start(t).Addr()
	for range 2 { // the second run does not find its rounds drawn by the first
		file, open := stagetest.Database(t)
		code, _ := stagetest.Run(t, "-redis", addr, "-db", file)
		require.Zero(t, code)
		require.Equal(t, []result{{1, 1, 10, 1}, {2, 1, 10, 1}, {3, 1, 10, 1}}, results(t, open()))
	}
}

func TestWeekly_lotteryHasTooManyWinnersWithoutTheGuard(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	file, open := stagetest.Database(t)
	code, printed := stagetest.Run(t, "-guard=off", "-redis", redistest.Start(t).Addr(), "-db", file)
	require.Equal(t, 1, code)
	for _, r := range results(t, open()) {
		require.Greater(t, r.draws, 1, "draws of round %d", r.round)
		require.Greater(t, r.winners, 10, "winners in round %d", r.round)
	}
	require.NotContains(t, printed, "on record")
	require.Contains(t, printed, "THE PROMISE WAS BROKEN")
}

func TestWeekly_lotteryAnotherReplicaTakesOverFromOneThatWasKilled(t *testing.T) {
	leftout.IfShort(t)
	stagetest.OnEachBackend(t, func(t *testing.T, args ...string) {
		file, open := stagetest.Database(t)
		code, printed := stagetest.Run(t, append(args, "-kill", "-db", file)...)
		require.Zero(t, code)
		require.Equal(t, 3, strings.Count(printed, "in mid-draw (SIGKILL)"))

		db := open()
		for _, r := range results(t, db) {
			require.Equal(t, 1, r.draws, "draws of round %d", r.round)
			require.Equal(t, 10, r.winners, "winners in round %d", r.round)
			require.Greater(t, r.replicas, 1, "replicas that wrote winners of round %d", r.round)
		}
		require.Equal(t, drawn(t, db), recorded(t, printed, "ran"))
		require.Len(t, recorded(t, printed, "lost"), 3, "the ticks at which a replica was killed")
		b := requireBooks(t, db)
		for _, w := range b.winners {
			for _, d := range b.draws {
				require.False(t, w.Round == d.Round && w.Fence > d.Fence, "a higher fence than that of the draw which counts")
			}
		}
	})
}

func TestWeekly_lotteryEndsWithAllItsReplicas(t *testing.T) {
	leftout.IfShort(t)
	t.Parallel()
	for _, how := range []struct {
		signal  os.Signal
		backend string
		code    int
	}{
		{os.Interrupt, "single", 130},
		{os.Interrupt, "reentrant", 130},
		{os.Interrupt, "redlock", 130},
		{os.Kill, "redlock", -1},
	} {
		t.Run(how.signal.String()+" "+how.backend, func(t *testing.T) {
			t.Parallel()
			lottery := stagetest.Start(t, "-kill", "-backend", how.backend)
			lottery.Await("round 1: draws, under fence")
			lottery.Signal(how.signal)
			require.Equal(t, how.code, lottery.Wait())
		})
	}
}

func TestLottery_refusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	file, _ := stagetest.Database(t)
	require.NoError(t, os.WriteFile(file, []byte("something dear"), 0o600))
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-guard=maybe"}, `lottery: invalid value "maybe" for flag -guard: must be on or off`},
		{[]string{"-redis", "127.0.0.1:1"}, "lottery: -redis 127.0.0.1:1: single: acquire"},
		{[]string{"-backend", "redlock", "-redis", "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"}, "3 of 3 nodes failed"},
		{[]string{"-backend", "redlock", "-redis", "a:1,a:1,b:1"}, "must not be on the same server, a:1"},
		{[]string{"-backend", "redlock", "-redis", "a:1,b:1"},
			"lottery: -redis a:1,b:1: -backend redlock takes three addresses at least"},
		{[]string{"-redis", "a:1,b:1,c:1"}, "lottery: -redis a:1,b:1,c:1: -backend single takes one address"},
		{[]string{"-redis", "a:1,b:1,c:1", "-backend", "reentrant"}, "-backend reentrant takes one address"},
		{[]string{"-backend", "memory"},
			`lottery: invalid value "memory" for flag -backend: each process would have a memory of its own`},
		{[]string{"-backend", "etcd"},
			`lottery: invalid value "etcd" for flag -backend: must be single, reentrant or redlock`},
		{[]string{"-db", file}, "lottery: -db " + file + ": the file exists already"},
		{[]string{"now"}, `lottery: unexpected argument "now"`},
	} {
		code, printed := stagetest.Run(t, c.args...)
		require.Equal(t, 2, code, printed)
		require.Contains(t, printed, c.says)
	}
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "something dear", string(kept))
}

func TestLottery_saysWhatItCanDo(t *testing.T) {
	t.Parallel()
	code, printed := stagetest.Run(t, "-h")
	require.Zero(t, code)
	for _, flag := range []string{"-guard", "-backend", "-redis", "-db", "-kill", "Exit codes"} {
		require.Contains(t, printed, flag)
	}
}
