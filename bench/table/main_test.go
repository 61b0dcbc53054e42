package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// contest is a part of what go test prints: redsync has been run three times, and stops early in
// one of them.
const contest = `goos: linux
goarch: amd64
pkg: github.com/seed-1795987d/onerun/bench
cpu: AMD EPYC
BenchmarkContended/impl=onerun/g=64/clients=1-2         	     500	     10000 ns/op	         2.0 cmds/pair	       267.5 p50-µs	    5948 B/op	      92 allocs/op
BenchmarkContended/impl=redsync/g=64/clients=1-2        	     500	    900000 ns/op	         2.3 cmds/pair
--- BENCH: BenchmarkContended/impl=redsync/g=64/clients=1-2
    contended_test.go:47: 66 of 200 pairs were done in 10s
BenchmarkContended/impl=redsync/g=64/clients=1-2        	     500	    100000 ns/op	         2.5 cmds/pair
BenchmarkContended/impl=redsync/g=64/clients=1-2        	     500	    300000 ns/op	         2.4 cmds/pair
BenchmarkContended/impl=redislock/g=64/clients=1-2      	     500	    400000 ns/op	         4.2 cmds/pair
BenchmarkContended/impl=rueidislock/g=64/clients=1-2    	     500	    200000 ns/op	         3.0 cmds/pair
BenchmarkReentrant/backend=single-2                     	    3000	    123096 ns/op
PASS
ok  	github.com/seed-1795987d/onerun/bench	5.848s
`

func without(text, word string) string {
	var kept strings.Builder
	for l := range strings.Lines(text) {
		if !strings.Contains(l, word) {
			kept.WriteString(l)
		}
	}
	return kept.String()
}

func printed(t *testing.T, in string) string {
	t.Helper()
	var out strings.Builder
	require.NoError(t, run(strings.NewReader(in), &out, goals, false))
	return out.String()
}

// goalRow is the row of the goal of 64 callers in one process.
func goalRow(t *testing.T, out string) string {
	t.Helper()
	for l := range strings.Lines(out) {
		if strings.HasPrefix(l, "| 64 callers in one process") {
			return l
		}
	}
	require.Fail(t, "there is no such row", out)
	return ""
}

func TestTable_comparesMediansWithTheBestPeer(t *testing.T) {
	out := printed(t, contest)
	require.Equal(t, "| 64 callers in one process, one key | × faster than the best peer | onerun 10 µs "+
		"| redsync 300 µs, redislock 400 µs, rueidislock 200 µs | 20 | at least 20 |  | met |\n", goalRow(t, out))
	require.Contains(t, out, "| g=64/clients=1 | redsync | 300 µs | 30 | 2.4 |")
	require.Contains(t, out, "| case | impl | time | × ours | cmds/pair | p50-µs | B/op | allocs/op |")
	require.NotContains(t, out, "Reentrant")
}

func TestTable_saysByHowMuchAGoalIsMissed(t *testing.T) {
	for ours, want := range map[string]string{
		"10001 ns/op":    "**missed** by 1 %",
		"20000 ns/op":    "**missed** by 50 %",
		"20000000 ns/op": "**missed** by 100 %",
	} {
		require.Contains(t, goalRow(t, printed(t, strings.Replace(contest, "10000 ns/op", ours, 1))), want)
	}
	few := goal{limit: 2}
	for figure, want := range map[float64]string{2: "met", 2.1: "**missed** by 5 %", 3: "**missed** by 50 %", 20: "**missed** by a factor of 10"} {
		require.Equal(t, want, verdict(few, measured{figure: figure}), figure)
	}
	require.Equal(t, "**missed** by 3", verdict(goal{limit: 0}, measured{figure: 3}))
	require.Equal(t, "met", verdict(goal{limit: 0}, measured{figure: 0}))
}

func TestTable_saysIfTheFloorMissesAGoalToo(t *testing.T) {
	const slow = "20000 ns/op"
	for floor, want := range map[string]string{
		"10000 ns/op": "at least 20 | 20 | **missed** by 50 % |",
		"16000 ns/op": "at least 20 | 12.5 | the floor forbids it |",
	} {
		in := strings.Replace(contest, "10000 ns/op", slow, 1) + "BenchmarkContended/impl=floor/g=64/clients=1-2 1 " + floor + "\n"
		require.Contains(t, goalRow(t, printed(t, in)), want)
	}
	in := contest + "BenchmarkContended/impl=floor/g=64/clients=1-2 1 16000 ns/op\n"
	require.Contains(t, goalRow(t, printed(t, in)), "at least 20 | 12.5 | met |")
}

func TestTable_makesUpNoRatioWhereAnImplementationIsMissing(t *testing.T) {
	for _, impl := range []string{"onerun", "redsync", "redislock", "rueidislock"} {
		out := printed(t, without(contest, "impl="+impl+"/"))
		row := goalRow(t, out)
		require.Contains(t, row, "| — | at least 20 |  | no figure: no ns/op of BenchmarkContended/impl="+impl+"/g=64/clients=1 |")
		require.NotContains(t, out, "NaN")
		require.NotContains(t, out, "Inf")
	}
	out := printed(t, without(contest, "impl=onerun/"))
	require.Contains(t, out, "| g=64/clients=1 | redislock | 400 µs |  | 4.2 |", "nor one to ours in the figures")
}

func TestTable_takesNoTimeForAFigure(t *testing.T) {
	for _, impl := range []string{"onerun", "rueidislock"} {
		in := without(contest, "impl="+impl+"/") + "BenchmarkContended/impl=" + impl + "/g=64/clients=1-2 1 0 ns/op\n"
		require.Contains(t, goalRow(t, printed(t, in)), "no figure: BenchmarkContended/impl="+impl+"/g=64/clients=1 took no time")
	}
}

func TestTable_refusesInputWithoutResults(t *testing.T) {
	for name, in := range map[string]string{
		"nothing":             "",
		"no benchmark":        "PASS\nok  \tbench\t0.1s\n",
		"a failed build":      "FAIL\tgithub.com/seed-1795987d/onerun/bench [build failed]\n",
		"nothing to compare":  "BenchmarkReentrant/backend=single-2 \t 3000\t 123096 ns/op\n",
		"a name without more": "BenchmarkContended/impl=onerun/g=64/clients=1\n",
	} {
		var out strings.Builder
		require.ErrorContains(t, run(strings.NewReader(in), &out, goals, false), "no results", name)
		require.Empty(t, out.String(), name)
	}
}

func TestTable_refusesALineThatIsCutOff(t *testing.T) {
	for _, in := range []string{
		contest + "BenchmarkContended/impl=onerun/g=64/clients=4-2 \t 500\n",
		contest + "BenchmarkContended/impl=onerun/g=64/clients=4-2 \t 500\t fast ns/op\n",
	} {
		require.ErrorContains(t, run(strings.NewReader(in), &strings.Builder{}, goals, false), "standard input:")
	}
}

func TestTable_canFailIfAGoalHasNoFigure(t *testing.T) {
	var out strings.Builder
	err := run(strings.NewReader(contest), &out, goals, true)
	require.EqualError(t, err, fmt.Sprintf("%d goals have no figure", len(goals)-1))
	require.Contains(t, out.String(), "### Goals", "the tables are printed all the same")
}

func TestTable_mayLeaveOutTheGoals(t *testing.T) {
	var out strings.Builder
	require.NoError(t, run(strings.NewReader(contest), &out, nil, true))
	require.Contains(t, out.String(), "### Contended")
	require.NotContains(t, out.String(), "Goals")
}

func TestMedian_isTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	l := line{"B", "onerun", "g=1"}
	for _, c := range []struct {
		values []float64
		want   float64
	}{{[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{100, 1, 3, 2}, 2.5}} {
		r := &results{values: map[line]map[string][]float64{l: {"x": c.values}}}
		got, err := r.median(l, "x")
		require.NoError(t, err)
		require.InDelta(t, c.want, got, 1e-9)
	}
	_, err := (&results{}).median(l, "x")
	require.EqualError(t, err, "no x of BenchmarkB/impl=onerun/g=1")
}

func TestNumber_hasThreeDigitsThatCount(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123456: "0.0123", 1.005: "1", 19.96: "20", 123.4: "123", 10000: "10000", 99.99: "100", -4096: "-4096"} {
		require.Equal(t, want, number(v))
	}
	for v, want := range map[float64]string{5: "5 ns", 53107: "53.1 µs", 2.5e6: "2.5 ms", 3e9: "3 s"} {
		require.Equal(t, want, duration(v))
	}
}
