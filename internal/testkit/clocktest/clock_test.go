package clocktest_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/internal/testkit/clocktest"
	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
)

// startTeller starts a program that tells the time.
func startTeller(t *testing.T, program string, env []string) *processtest.Child {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	p := processtest.StartChild(t, cmd)
	t.Cleanup(func() {
		p.CloseInput()
		p.Ends()
	})
	return p
}

// reads returns by how much the wall clock of a process is off from ours, and how long it has run
// by its monotonic clock.
func reads(t *testing.T, p *processtest.Child) (off, ran time.Duration) {
	t.Helper()
	asked := time.Now()
	p.Tell("")
	var wall int64
	_, err := fmt.Sscan(p.Next(), &wall, (*int64)(&ran))
	require.NoError(t, err)
	return time.Unix(0, wall).Sub(asked.Round(0)), ran
}

// tellers are programs that print wall and monotonic time, each with what its clock is moved by.
func tellers(t *testing.T, clock *clocktest.Clock) map[string]*processtest.Child {
	t.Helper()
	inGo, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/now")
	require.NoError(t, err)
	preload, err := clock.Preload(t.Context(), t.TempDir())
	require.NoError(t, err)
	inC := t.TempDir() + "/now"
	compiler, err := clocktest.Compiler()
	require.NoError(t, err)
	out, err := exec.Command(compiler, "-o", inC, "testdata/now.c").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return map[string]*processtest.Child{"Go": startTeller(t, inGo, clock.Env()), "C": startTeller(t, inC, preload)}
}

func TestClock_movesTheWallClockAndNotTheMonotonicOne(t *testing.T) {
	// between our look at the clock and the process', on a machine that has other things to do
	const quick = 30 * time.Second
	clock := clocktest.New(t)
	for language, process := range tellers(t, clock) {
		t.Run(language, func(t *testing.T) {
			off, _ := reads(t, process)
			require.Less(t, off.Abs(), quick, "it is right until it is moved")
			for _, jump := range []time.Duration{2 * time.Hour, -5 * time.Hour, 3 * time.Hour} {
				_, before := reads(t, process)
				clock.Jump(jump)
				off, after := reads(t, process)
				require.Less(t, (off - clock.Shift()).Abs(), quick)
				require.GreaterOrEqual(t, after, before)
				require.Less(t, after-before, quick)
			}
			require.Zero(t, clock.Shift())
		})
	}
}

func TestClock_isNothingToAGoProgramThatIsStartedWithoutIt(t *testing.T) {
	program, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/now")
	require.NoError(t, err)
	off, _ := reads(t, startTeller(t, program, nil))
	require.Less(t, off.Abs(), 30*time.Second)
}

func TestPreload_saysThatThereIsNoCompiler(t *testing.T) {
	t.Setenv("CC", "no-such-compiler")
	_, err := clocktest.New(t).Preload(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "clocktest: no C compiler")
	require.ErrorIs(t, err, exec.ErrNotFound)
}

func TestBuildGo_saysWhatDoesNotCompile(t *testing.T) {
	_, err := clocktest.BuildGo(t.Context(), t.TempDir(), "./testdata/nothing")
	require.ErrorContains(t, err, "testdata/nothing")
}
